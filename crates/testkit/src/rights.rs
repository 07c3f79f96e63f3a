//! Compares the rights that Roles grant with the requests in the audit log, in both directions.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

/// Non-resource paths that every account may read.
const FOR_ALL: [&str; 2] = ["/api", "/apis"];

/// One verb on one object, or on all objects of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    user: String,
    /// Empty: all namespaces.
    namespace: String,
    /// Group, resource and subresource, separated by slashes; a path for a non-resource request.
    resource: String,
    /// Empty: all names.
    name: String,
    verb: String,
}

impl Right {
    fn covers(&self, call: &Self) -> bool {
        self.user == call.user
            && (self.namespace.is_empty() || self.namespace == call.namespace)
            && self.resource == call.resource
            && (self.name.is_empty() || self.name == call.name)
            && self.verb == call.verb
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.rsplit(':').next().unwrap_or_default();
        let Self {
            namespace,
            resource,
            name,
            verb,
            ..
        } = self;
        write!(f, "{user}: {verb} {resource} `{name}` in `{namespace}`")
    }
}

/// The requests of some accounts.
#[derive(Debug, Default)]
pub struct Calls {
    allowed: BTreeSet<Right>,
    refused: BTreeSet<Right>,
}

impl Calls {
    /// Reads the requests of these users. `counts` sees every event of the audit log in order, and decides whether a
    /// forbidden request counts.
    pub fn read(
        log: &Path,
        users: &[&str],
        mut counts: impl FnMut(&Value) -> bool,
    ) -> Result<Self> {
        let mut calls = Self::default();
        for line in fs::read_to_string(log)?.lines() {
            // The last line may be incomplete.
            let Ok(event) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let counts = counts(&event);
            let Some(call) = call(&event, users) else {
                continue;
            };
            if event["annotations"]["authorization.k8s.io/decision"] == "allow" {
                // Server-side apply of an object that does not exist creates it.
                if call.verb == "patch" && event["responseStatus"]["code"] == 201 {
                    calls.allowed.insert(Right {
                        verb: "create".to_owned(),
                        ..call.clone()
                    });
                }
                calls.allowed.insert(call);
            } else if counts {
                calls.refused.insert(call);
            }
        }
        Ok(calls)
    }
}

fn call(event: &Value, users: &[&str]) -> Option<Right> {
    let user = text(&event["user"]["username"]);
    if !users.contains(&user.as_str()) {
        return None;
    }
    let target = &event["objectRef"];
    let mut resource = [
        text(&target["apiGroup"]),
        text(&target["resource"]),
        text(&target["subresource"]),
    ]
    .join("/");
    if target.is_null() {
        resource = text(&event["requestURI"]);
        // The API server's own role `system:discovery` allows discovery to all accounts.
        if FOR_ALL.contains(&resource.as_str()) || resource.starts_with("/apis/") {
            return None;
        }
    }
    Some(Right {
        user,
        namespace: text(&target["namespace"]),
        resource: resource.trim_end_matches('/').to_owned(),
        name: text(&target["name"]),
        verb: text(&event["verb"]),
    })
}

/// A substring of a right or a request as printed, and a reason.
pub type Table<'a> = &'a [(&'a str, &'a str)];

/// Expected differences between rights and requests, with reasons.
pub struct Exceptions<'a> {
    /// Rights that no request needs.
    pub unused: Table<'a>,
    /// Rights that a request needs only sometimes, and when.
    pub sometimes: Table<'a>,
    /// Requests that are forbidden.
    pub refused: Table<'a>,
}

/// Panics if a request has no right, a right has no request, or an exception is not needed.
pub fn assert_same(rights: &BTreeSet<Right>, calls: &Calls, exceptions: &Exceptions) {
    let matches = |right: &Right, table: Table| {
        let text = right.to_string();
        table.iter().any(|(part, _)| text.contains(part))
    };
    let uncovered: Vec<String> = calls
        .allowed
        .iter()
        .filter(|call| !rights.iter().any(|right| right.covers(call)))
        .map(ToString::to_string)
        .collect();
    assert!(
        uncovered.is_empty(),
        "no rule allows these requests: {uncovered:#?}"
    );
    let unexpected: Vec<String> = calls
        .refused
        .iter()
        .filter(|call| !matches(call, exceptions.refused))
        .map(ToString::to_string)
        .collect();
    assert!(unexpected.is_empty(), "not allowed: {unexpected:#?}");
    let unused: Vec<&Right> = rights
        .iter()
        .filter(|right| !calls.allowed.iter().any(|call| right.covers(call)))
        .collect();
    let needless: Vec<String> = unused
        .iter()
        .filter(|right| !matches(right, exceptions.unused) && !matches(right, exceptions.sometimes))
        .map(ToString::to_string)
        .collect();
    assert!(
        needless.is_empty(),
        "no request needs these rights: {needless:#?}"
    );
    for (part, reason) in exceptions.unused {
        let is_there = unused.iter().any(|right| right.to_string().contains(part));
        assert!(is_there, "it is used: {part} ({reason})");
    }
    println!(
        "{} rights, {} of them used, by {} different requests",
        rights.len(),
        rights.len() - unused.len(),
        calls.allowed.len()
    );
}

/// Every right that these objects grant to service accounts.
pub fn rights_of(objects: &[Value]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for binding in of_kind(objects, "Binding") {
        let namespace = binding["metadata"]["namespace"].as_str();
        let mut roles = of_kind(objects, "");
        let role = roles.find(|role| {
            role["kind"] == binding["roleRef"]["kind"]
                && role["metadata"]["name"] == binding["roleRef"]["name"]
                && role["metadata"]["namespace"].as_str() == namespace
        });
        let role = role.expect("the role of a binding");
        // The permissions of kubelets for the credential provider don't belong to an account of globalps.
        let accounts = list(&binding["subjects"]).iter();
        for subject in accounts.filter(|subject| subject["kind"] == "ServiceAccount") {
            let user = service_account(&text(&subject["namespace"]), &text(&subject["name"]));
            for rule in list(&role["rules"]) {
                rights.extend(rights_of_rule(&user, namespace.unwrap_or_default(), rule));
            }
        }
    }
    rights
}

fn rights_of_rule(user: &str, namespace: &str, rule: &Value) -> Vec<Right> {
    let words = |field: &str| -> Vec<String> { list(&rule[field]).iter().map(text).collect() };
    let mut names = words("resourceNames");
    if names.is_empty() {
        names.push(String::new());
    }
    let mut rights = Vec::new();
    for group in words("apiGroups") {
        for resource in words("resources") {
            for name in &names {
                for verb in words("verbs") {
                    rights.push(Right {
                        user: user.to_owned(),
                        namespace: namespace.to_owned(),
                        resource: format!("{group}/{resource}"),
                        name: name.clone(),
                        verb,
                    });
                }
            }
        }
    }
    rights
}

fn of_kind<'a>(objects: &'a [Value], ending: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| {
        let kind = object["kind"].as_str().unwrap_or_default();
        kind == format!("Role{ending}") || kind == format!("ClusterRole{ending}")
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
/// User name of a service account.
pub fn service_account(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}
