//! `why`, and `--retry-pods`.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use super::*;

/// Accepts only user `u` with password `p`, without TLS. Has the image `team/app:1`.
pub(super) fn registry() -> String {
    web(|request, _| {
        if !request.contains(RIGHT) {
            "401 X\r\nWWW-Authenticate: Basic realm=\"x\"".to_owned()
        } else if request.contains("/v2/ ") || request.contains(MANIFEST) {
            "200 X".to_owned()
        } else {
            "404 X".to_owned()
        }
    })
}

/// The accepted user and password, as in a request in lower case.
pub(super) const RIGHT: &str = "authorization: basic dtpw";
const MANIFEST: &str = "/team/app/manifests/1 ";

/// A web server without TLS. `status`: maps a request in lower case and the server's address to a status, further
/// headers and a body.
pub(super) fn web(status: impl Fn(&str, &str) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let own = address.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut bytes = [0; 4096];
            let length = stream.read(&mut bytes).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes[..length]).to_lowercase();
            let status = status(&text, &own);
            let (head, body) = status.split_once("\r\n\r\n").unwrap_or((&status, ""));
            let length = body.len();
            let response = format!(
                "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(response.as_bytes());
        }
    });
    address
}

pub(super) fn pod(image: &str, more: &Value) -> Value {
    let mut pod = json!({
        "metadata": {"namespace": "a", "uid": image},
        "spec": {
            "nodeName": "node-1", "serviceAccountName": "ci",
            "containers": [{"name": "c", "image": image}], "imagePullSecrets": [{"name": "own"}],
        },
        "status": {"phase": "Pending", "containerStatuses": [{
            "name": "c", "image": image, "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ErrImagePull", "message": "401 Unauthorized"}},
        }]},
    });
    json_patch::merge(&mut pod, more);
    pod
}

pub(super) fn owned() -> Value {
    json!({"metadata": {"ownerReferences": [{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": true,
    }]}})
}

/// An installation with `auths` on every node, and these pods in namespace `a`.
pub(super) fn with_pods(auths: &[(&str, &str)], pods: &[(&str, Value)]) -> FakeApi {
    let mut objects = vec![
        (path("secrets", names::GLOBAL_SECRET), in_force(auths, &[])),
        (path("secrets", names::ADDITIONAL_SECRET), secret(auths)),
        (
            path("globalpullsecrets", names::GLOBAL_SECRET),
            gps("101", &json!({}), &[("Ready", "True", "Synced")]),
        ),
        (path("nodepullsecrets", "node-1"), node("Synced")),
        (
            path("deployments", names::CONTROLLER),
            deployment(names::NAMESPACE, 1, 1),
        ),
        ("/api/v1/namespaces/a/secrets/own".to_owned(), secret(&[])),
    ];
    for (name, pod) in pods {
        objects.push((format!("/api/v1/namespaces/a/pods/{name}"), pod.clone()));
    }
    let objects: Vec<(&str, Value)> = objects
        .iter()
        .map(|(path, object)| (path.as_str(), object.clone()))
        .collect();
    FakeApi::new(&objects)
}

#[test]
fn why_says_no_where_a_cause_was_found_and_asks_the_registry() {
    let registry = registry();
    let image = format!("{registry}/team/app:1");
    let running = json!({"status": {"phase": "Running", "containerStatuses": null}});
    for (auths, more, expected) in [
        (&[][..], json!({}), Exit::No),
        (&[(registry.as_str(), OTHER_AUTH)][..], json!({}), Exit::No),
        (&[(registry.as_str(), AUTH)], json!({}), Exit::No),
        (&[], running, Exit::Done),
    ] {
        let api = with_pods(auths, &[("p", pod(&image, &more))]);
        for format in ["text", "json", "yaml"] {
            for line in ["why a/p", "why p -n a", "why", "why -A", "why -n a"] {
                let line = format!("{line} --insecure -o {format}");
                assert_eq!(api.run(&line), Ok(expected), "{line}");
            }
        }
        assert_eq!(api.writes(), [""; 0]);
    }
    let api = with_pods(&[], &[]);
    let failure = refused(api.run("why a/gone"));
    assert_eq!(failure.message, "there is no Pod `a/gone`");
}

#[test]
fn why_names_the_catalogs_secret_where_a_copy_is_refused() {
    let registry = registry();
    let mut copy = secret(&[(&registry, OTHER_AUTH)]);
    copy["metadata"]["labels"] = json!({names::OPERATOR_SECRET_LABEL: "true"});
    let name = names::operator_secret("olm", "pull");
    let secrets = json!({"spec": {"imagePullSecrets": [{"name": name}]}});
    let pod = pod(&format!("{registry}/team/app:1"), &secrets);
    let api = FakeApi::new(&[
        (&path("nodepullsecrets", "node-1"), node("Synced")),
        (&format!("/api/v1/namespaces/a/secrets/{name}"), copy),
        ("/api/v1/namespaces/a/pods/p", pod),
    ]);
    let (ran, [out, _]) = api.printed("why a/p --insecure -o json");
    assert_eq!(ran, Ok(Exit::No));
    let answer: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(answer["cause"]["code"], "CredentialsRefused", "{out}");
    assert_eq!(
        answer["cause"]["command"],
        "kubectl -n olm edit secret pull"
    );
}

#[test]
fn thousands_of_pods_are_read_in_pages_and_looked_at_once() {
    let pods: Vec<(String, Value)> = (0..5000)
        .map(|at| (format!("p{at}"), pod("quay.io/team/app:1", &owned())))
        .collect();
    let pods: Vec<(&str, Value)> = pods
        .iter()
        .map(|(name, pod)| (name.as_str(), pod.clone()))
        .collect();
    let api = with_pods(&[], &pods);
    assert_eq!(api.run("why -A --no-ask"), Ok(Exit::No));
    let requests = api.requests();
    let lists = requests.iter().filter(|it| *it == "list /api/v1/pods");
    assert_eq!(lists.count(), 10);
    assert!(requests.len() < 30, "{}", requests.len());
}

#[test]
fn check_names_exactly_the_permissions_of_why() {
    let all = permissions_of_commands(2);
    for (line, command) in [("why a/p --no-ask", "why"), ("why -A --no-ask", "why -A")] {
        let named: Vec<&Permission> = all
            .iter()
            .filter(|permission| permission.is_for(command))
            .collect();
        let api = || {
            with_pods(
                &[("quay.io", AUTH)],
                &[("p", pod("quay.io/team/app:1", &json!({})))],
            )
        };
        let rights = named.iter().map(|permission| right(permission)).collect();
        assert_eq!(api().allow_only(rights).run(line), Ok(Exit::No), "{line}");
        for missing in &named {
            let rights = named.iter().filter(|it| !right(it).covers(&right(missing)));
            let api = api().allow_only(rights.map(|it| right(it)).collect());
            let ran = api.run(line);
            let can_do_without = ["events", "serviceaccounts", "nodes"].contains(&missing.resource)
                || missing.resource == "secrets" && missing.name.is_empty()
                || missing.name == names::ADDITIONAL_SECRET
                || missing.name.contains("history");
            if can_do_without && missing.resource != "secrets" {
                assert_eq!(ran, Ok(Exit::No), "{line} without {missing:?}");
            } else if !can_do_without {
                let is_refused = ran.as_ref().is_err_and(|failure| failure.is(403));
                assert!(is_refused, "{line} without {missing:?}: {ran:?}");
            }
        }
    }
}

#[test]
fn waiting_pods_with_a_controller_are_evicted_after_add() {
    let image = "quay.io/team/app:1";
    let job = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "batch/v1", "kind": "Job", "name": "o", "uid": "u", "controller": true,
    }]}});
    let mut kept_by_budget = owned();
    kept_by_budget["metadata"]["labels"] = json!({"budget": "0"});
    let api = || {
        with_pods(
            &[],
            &[
                ("bare", pod(image, &json!({}))),
                ("owned", pod(image, &owned())),
                ("job", pod(image, &job)),
                ("budget", pod(image, &kept_by_budget)),
                ("other", pod("ghcr.io/team/app:1", &owned())),
            ],
        )
        .with_controller(act)
    };
    let evictions = |api: &FakeApi| -> Vec<String> {
        let writes = api.writes().into_iter();
        writes.filter(|write| write.contains("/pods/")).collect()
    };
    let line = format!("{ADD} --wait --timeout 8s");
    let counted = api();
    assert_eq!(counted.run(&line), Ok(Exit::Done));
    assert_eq!(evictions(&counted), [""; 0]);
    let retried = api();
    assert_eq!(retried.run(&format!("{line} --retry-pods")), Ok(Exit::Done));
    let mut evicted = evictions(&retried);
    evicted.dedup();
    assert_eq!(
        evicted,
        [
            "create /api/v1/namespaces/a/pods/budget/eviction",
            "create /api/v1/namespaces/a/pods/owned/eviction",
        ]
    );
    let left = |name: &str| retried.object(&format!("/api/v1/namespaces/a/pods/{name}"));
    assert!(left("owned").is_none());
    for name in ["bare", "job", "budget", "other"] {
        assert!(left(name).is_some(), "{name}");
    }
    // Without the permission to list pods, the command has still succeeded.
    let all = permissions_of_commands(2);
    let named = |permission: &&Permission| {
        let of_add = ["add", "the first add", "--wait"];
        permission.commands.iter().any(|it| of_add.contains(it))
    };
    let rights = all.iter().filter(named).map(right).collect();
    assert_eq!(api().allow_only(rights).run(&line), Ok(Exit::Done));
    let rights = all.iter().filter(named).map(right).collect();
    let refused = refused(
        api()
            .allow_only(rights)
            .run(&format!("{line} --retry-pods")),
    );
    assert!(refused.is(403), "{refused:?}");
}

#[test]
fn why_prints_a_command_that_works_as_it_is() {
    let registry = registry();
    let image = format!("{registry}/team/app:1");
    let rejected = || {
        with_pods(
            &[(&registry, OTHER_AUTH)],
            &[("p", pod(&image, &json!({})))],
        )
    };
    let add = format!("kubectl globalps add {registry} -u u --insecure --wait --retry-pods");
    for (flags, expected) in [
        (
            "",
            format!("`{registry}` rejects the node's credentials: user `u`, from the nodes' file"),
        ),
        (
            " --insecure",
            format!("`{registry}` rejects user `u` of entry `{registry}` in the nodes' file (401)"),
        ),
    ] {
        for line in ["why a/p", "why -A"] {
            let (ran, [out, _]) = rejected().printed(&format!("{line}{flags}"));
            assert_eq!(ran, Ok(Exit::No), "{line}{flags}");
            assert!(out.contains(&format!("cause:      {expected}\n")), "{out}");
            assert!(out.contains(&format!("to fix it:  {add}\n")), "{out}");
        }
    }
    let (_, [out, _]) = rejected().printed("why a/p");
    assert!(
        out.contains(
            "does not speak TLS; if the registry uses plain HTTP on purpose, add `--insecure`\n"
        ),
        "{out}"
    );
    let without_tls = json!({"status": {"containerStatuses": [{
        "name": "c", "image": image, "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}},
    }]}});
    let api = with_pods(&[], &[("p", pod(&image, &without_tls))]);
    let (_, [out, _]) = api.printed("why a/p");
    assert!(
        out.contains("hint:       if the registry uses plain HTTP on purpose, add `--insecure`"),
        "{out}"
    );
    // No `--insecure` in the command if it isn't needed.
    let api = with_pods(
        &[("quay.io", AUTH)],
        &[("p", pod("quay.io/a:1", &json!({})))],
    );
    let (_, [out, _]) = api.printed("why a/p --no-ask");
    assert!(
        out.contains("add quay.io -u u --wait --retry-pods\n"),
        "{out}"
    );
}

fn right_to_history() -> Right {
    Right {
        verb: "get".to_owned(),
        resource: "secrets".to_owned(),
        namespace: names::NAMESPACE.to_owned(),
        name: names::history_secret(0),
    }
}

#[test]
fn why_mentions_an_earlier_revision_with_other_credentials() {
    let registry = registry();
    let image = format!("{registry}/team/app:1");
    let undo = "`kubectl globalps undo --to-revision 2 --wait --retry-pods`";
    for (number, auths, expected) in [
        ("2", vec![(registry.as_str(), AUTH)], true),
        ("2", vec![(registry.as_str(), OTHER_AUTH)], false),
        ("2", vec![("ghcr.io", AUTH)], false),
    ] {
        let slot = (
            path("secrets", &names::history_secret(0)),
            kept(number, &auths),
        );
        let objects = |may_read: bool| {
            let api = with_pods(
                &[(&registry, OTHER_AUTH)],
                &[("p", pod(&image, &json!({})))],
            );
            let api = api.with_object(&slot.0, slot.1.clone());
            if may_read {
                return api;
            }
            let all = permissions_of_commands(2);
            let named = all.iter();
            let named = named.filter(|it| it.is_for("why") || it.is_for("why -A"));
            let is_of_history = |it: &&Permission| right(it).covers(&right_to_history());
            api.allow_only(named.filter(|it| !is_of_history(it)).map(right).collect())
        };
        for line in ["why a/p", "why -A"] {
            let line = format!("{line} --insecure");
            let (ran, [out, _]) = objects(true).printed(&line);
            assert_eq!((ran, out.contains(undo)), (Ok(Exit::No), expected), "{out}");
            let (ran, [out, err]) = objects(false).printed(&line);
            assert_eq!((ran, out.contains(undo)), (Ok(Exit::No), false), "{err}");
        }
    }
    // Only read if the credentials of globalps are rejected.
    let api = with_pods(&[], &[("p", pod(&image, &json!({})))]);
    assert_eq!(api.run("why a/p --insecure"), Ok(Exit::No));
    let requests = api.requests();
    assert!(
        !requests.iter().any(|it| it.contains("history")),
        "{requests:?}"
    );
}

#[test]
fn why_does_not_call_a_node_behind_where_nothing_is_synced() {
    let mut nothing = gps("", &json!({}), &[("Ready", "True", "NoAdditional")]);
    nothing["status"]["revision"] = json!(0);
    let mut pending = node("Pending");
    pending["status"]["revision"] = json!(0);
    let api = FakeApi::new(&[
        (&path("globalpullsecrets", names::GLOBAL_SECRET), nothing),
        (&path("nodepullsecrets", "node-1"), pending),
        (
            "/api/v1/namespaces/a/pods/p",
            pod("quay.io/a:1", &json!({})),
        ),
    ]);
    let (ran, [out, _]) = api.printed("why a/p --no-ask");
    assert_eq!(ran, Ok(Exit::No));
    assert!(out.contains("nothing is synced to the nodes"), "{out}");
    assert!(!out.contains("Pending"), "{out}");
}
