//! A further source: its entry in `spec.sources`, and the controller's permission to read its Secret.

use globalps_core::api::{GlobalPullSecret, SourceScope};
use globalps_core::names;
use globalps_manifests::sources_access;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, Patch};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::restore_configuration::must_not_be_deleted;
use super::restore_intent::meant;
use super::source_state::{When, must_reach_pods};
use crate::cli::{DryRun, Span};
use crate::cluster::create::create;
use crate::cluster::namespaces::Who;
use crate::cluster::{Cluster, Program, is_installed, params};
use crate::error::{Failure, Result};
use crate::install::objects::{Object, apply};
use crate::secret::additional::{data_of, may_change_of};
use crate::secret::scope::{ScopeChange, shown, with_source, without_source};
use crate::target::pull_secret;
use crate::target::wait::until_reported;

/// The `GlobalPullSecret` with its sources. Untyped, because a typed object would write all of today's defaults and
/// drop the fields of a newer release.
pub(crate) struct Sources {
    object: Option<DynamicObject>,
    list: Vec<Value>,
}

impl Sources {
    pub(crate) async fn observe(cluster: &Cluster<'_>) -> Result<Self> {
        let api = api(cluster);
        let call = api.get_opt(names::GLOBAL_SECRET);
        let object = cluster.call("get the GlobalPullSecret", call).await?;
        if object.is_none() && !is_installed(cluster).await {
            return Err(Failure::new(
                "globalps is not installed in this cluster, so it can't have sources",
                "`kubectl globalps install --help` shows how to install it",
            ));
        }
        if object.is_none() {
            must_not_be_deleted(cluster).await?;
        }
        Ok(Self::of(object))
    }

    fn of(object: Option<DynamicObject>) -> Self {
        let list = object
            .as_ref()
            .and_then(|object| object.data["spec"]["sources"].as_array());
        Self {
            list: list.cloned().unwrap_or_default(),
            object,
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.list.iter().any(|source| source["name"] == name)
    }

    pub(crate) fn has_others(&self, name: &str) -> bool {
        self.list.iter().any(|source| source["name"] != name)
    }

    /// The revision that the controller reported last; 0 if none.
    pub(crate) fn revision(&self) -> i64 {
        let object = self.object.as_ref();
        let revision = object.and_then(|object| object.data["status"]["revision"].as_i64());
        revision.unwrap_or_default()
    }

    /// Refuses to change a list that another program would revert; with `force`, returns only that program's name.
    pub(crate) fn may_change(&self, force: bool) -> Result<Option<String>> {
        let Some(object) = &self.object else {
            return Ok(None);
        };
        let title = format!("GlobalPullSecret `{}`", names::GLOBAL_SECRET);
        let holds = |fields: &Value| fields["f:spec"].get("f:sources").is_some();
        may_change_of(&title, &object.metadata, holds, force)
    }

    /// Replaces the list, if the object hasn't changed since it was read; otherwise the API server answers 409. A patch
    /// of this field only: server-side apply would drop the fields that `install` applied, and could not remove entries
    /// of other managers. `restores`: the nodes lose their last credentials with the source on purpose.
    async fn write(
        &self,
        cluster: &Cluster<'_>,
        list: &[Value],
        restores: bool,
        dry_run: DryRun,
    ) -> Result<()> {
        let (name, api) = (names::GLOBAL_SECRET, api(cluster));
        let spec = json!({"sources": list});
        let Some(object) = &self.object else {
            let is_dry_run = dry_run == DryRun::Server;
            return create::<GlobalPullSecret>(cluster, (name, name), spec, is_dry_run).await;
        };
        let metadata = if restores {
            meant(&object.metadata, self.list != list)
        } else {
            json!({"resourceVersion": object.metadata.resource_version})
        };
        let patch = Patch::Merge(json!({"metadata": metadata, "spec": spec}));
        let params = params::patch(dry_run == DryRun::Server);
        let doing = format!("patch GlobalPullSecret `{name}`");
        let patched = cluster.call(&doing, api.patch(name, &params, &patch)).await;
        patched.map(drop)
    }

    /// Removes the source from the list, and the controller's permission to read its Secret.
    pub(crate) async fn forget(
        &self,
        cluster: &Cluster<'_>,
        name: &str,
        dry_run: DryRun,
    ) -> Result<Vec<String>> {
        let list = without_source(&self.list, name);
        if dry_run != DryRun::Client {
            self.write(cluster, &list, true, dry_run).await?;
        }
        let mut done = vec![configured()];
        if dry_run != DryRun::None {
            return Ok(done);
        }
        let objects = sources_access(&cluster.namespace, names_of(&list)).map(Object::of);
        for object in &objects {
            let changed = if list.is_empty() {
                object.delete(cluster, false).await.map(|_| "deleted")
            } else {
                let applied = apply(cluster, object, false).await;
                applied.map(|()| "serverside-applied")
            };
            match changed {
                Ok(word) => done.push(format!("{} {word}", object.title())),
                Err(failure) if failure.is(403) => {
                    cluster.printer().note(format_args!(
                        "the controller may still read a Secret `{name}`: Role `{}` allows it",
                        object.name()
                    ));
                    break;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(done)
    }
}

/// The changes that `add --source` makes to the sources.
pub(crate) struct Planned {
    pub sources: Sources,
    name: String,
    list: Vec<Value>,
    pub change: ScopeChange,
}

impl Planned {
    /// `scope`: with `None`, a known source keeps its scope, and a new one has none.
    pub(crate) fn of(sources: Sources, name: &str, scope: Option<&SourceScope>) -> Self {
        let list = with_source(&sources.list, name, scope);
        Self {
            change: ScopeChange {
                source: name.to_owned(),
                before: who(&sources.list, name),
                after: who(&list, name),
            },
            name: name.to_owned(),
            list,
            sources,
        }
    }

    pub(crate) fn is_new(&self) -> bool {
        !self.sources.has(&self.name)
    }

    pub(crate) fn is_change(&self) -> bool {
        self.list != self.sources.list
    }

    pub(crate) fn has_scope(&self) -> bool {
        find(&self.list, &self.name).is_some_and(|source| source["scope"].is_object())
    }

    /// Whether the source is, or was, for every pod.
    pub(crate) fn is_of_every_pod(&self) -> bool {
        self.change.is_of_every_pod()
    }

    /// The pods whose credentials it changes: those of the new scope, and those of the old one.
    pub(crate) fn who(&self) -> Vec<Who> {
        let lists = [&self.sources.list, &self.list];
        let sources = lists.into_iter().filter_map(|list| find(list, &self.name));
        let mut who: Vec<Who> = sources
            .map(|source| match scope_of(source) {
                Some(scope) => Who::Wanted(scope),
                None => Who::EveryPod,
            })
            .collect();
        who.dedup();
        who
    }

    /// Whether a namespace's Secret can contain it: that Secret is for every pod of the namespace.
    pub(crate) fn is_for_namespaces(&self) -> bool {
        let scope = find(&self.list, &self.name).and_then(scope_of);
        scope.is_none_or(|scope| scope.service_accounts.is_empty())
    }

    /// The changes apart from the Secret, as `diff` shows them.
    pub(crate) fn text(&self) -> String {
        let mut text = self.change.text();
        if self.is_new() {
            text.push_str("+role `globalps-controller-sources`: the controller reads Secret `");
            text.push_str(&self.name);
            text.push_str("`\n");
        }
        text
    }

    /// Writes the permission and the entry. This happens before the credentials are written to the Secret, so that no
    /// pod outside the scope ever gets them. Returns what was done.
    pub(crate) async fn carry_out(
        &self,
        cluster: &Cluster<'_>,
        dry_run: DryRun,
    ) -> Result<Vec<String>> {
        let (mut done, suffix) = match dry_run {
            DryRun::Client => return Ok(vec![configured_in_dry_run()]),
            DryRun::Server => (Vec::new(), " (server dry run)"),
            DryRun::None => (Vec::new(), ""),
        };
        if self.is_new() {
            let objects = sources_access(&cluster.namespace, names_of(&self.list));
            for object in objects.map(Object::of) {
                match apply(cluster, &object, dry_run == DryRun::Server).await {
                    Ok(()) => done.push(format!("{} serverside-applied{suffix}", object.title())),
                    Err(failure) if failure.is(403) => {
                        let name = &self.name;
                        cluster.printer().warning(format_args!(
                            "the controller may not read Secret `{name}`, and this user may not allow it: an administrator runs `kubectl globalps install --source {name}`"
                        ));
                        break;
                    }
                    Err(failure) => return Err(failure),
                }
            }
        }
        self.sources
            .write(cluster, &self.list, false, dry_run)
            .await?;
        done.push(format!("{}{suffix}", configured()));
        Ok(done)
    }
}

/// Waits until the controller has merged the source's Secret into `global-pull-secret` and reports that revision,
/// because a status has no version of a source's Secret. `before`: the reported revision before the change, for a user
/// who may not read `global-pull-secret`; `None`: nothing was changed.
pub(crate) async fn taken_up(
    cluster: &Cluster<'_>,
    name: &str,
    before: Option<i64>,
    timeout: Span,
) -> Result<()> {
    let look = async || {
        let reported = Sources::observe(cluster).await?.revision();
        let global = match pull_secret::in_force(cluster).await {
            Err(failure) if failure.is(403) => {
                return Ok(before.is_none_or(|before| reported > before));
            }
            global => global?,
        };
        let secret = pull_secret::get(cluster, name).await?;
        Ok(is_taken_up(
            secret.as_ref(),
            global.as_ref(),
            name,
            reported,
        ))
    };
    match until_reported(cluster, Program::Controller, name, timeout, look).await {
        Err(late) => {
            // The controller's report may contain the reason.
            must_reach_pods(cluster, name, When::AfterTheRollout).await?;
            Err(late)
        }
        done => done,
    }
}

fn is_taken_up(
    secret: Option<&Secret>,
    global: Option<&Secret>,
    name: &str,
    reported: i64,
) -> bool {
    let key = format!("{}{name}", names::LAST_SOURCE_KEY_PREFIX);
    let wanted = secret.and_then(|secret| data_of(secret, names::DATA_KEY));
    let taken = global.and_then(|global| data_of(global, &key));
    let revision = global.and_then(|global| global.annotations().get(names::REVISION_ANNOTATION));
    let revision = revision.and_then(|revision| revision.parse::<i64>().ok());
    wanted.is_some() && wanted == taken && revision.is_some_and(|number| reported >= number)
}

fn api(cluster: &Cluster<'_>) -> Api<DynamicObject> {
    cluster.untyped::<GlobalPullSecret>()
}

fn configured() -> String {
    format!(
        "globalpullsecret.globalps.io/{} configured",
        names::GLOBAL_SECRET
    )
}

pub(crate) fn configured_in_dry_run() -> String {
    configured() + DryRun::Client.suffix()
}

fn find<'a>(list: &'a [Value], name: &str) -> Option<&'a Value> {
    list.iter().find(|source| source["name"] == name)
}

/// Empty if it is not a source.
fn who(list: &[Value], name: &str) -> String {
    let Some(source) = find(list, name) else {
        return String::new();
    };
    shown(scope_of(source).as_ref())
}

/// `None` if the source is for every pod.
fn scope_of(source: &Value) -> Option<SourceScope> {
    serde_json::from_value(source["scope"].clone()).unwrap_or_default()
}

fn names_of(list: &[Value]) -> Vec<String> {
    let names = list.iter().filter_map(|source| source["name"].as_str());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::discovery::ApiResource;

    fn sources(list: &Value) -> Sources {
        let mut object = DynamicObject::new("g", &ApiResource::erase::<GlobalPullSecret>(&()));
        object.data = json!({"spec": {"sources": list}, "status": {"revision": 4}});
        Sources::of(Some(object))
    }

    fn scope(namespace: &str) -> SourceScope {
        SourceScope {
            namespaces: vec![namespace.to_owned()],
            ..SourceScope::default()
        }
    }

    #[test]
    fn what_becomes_of_a_source_is_shown() {
        let known = json!([{"name": "s", "scope": {"namespaces": ["a"]}}]);
        let new = "\
+source `t`: pods of b
+role `globalps-controller-sources`: the controller reads Secret `t`
";
        for (name, asked, is_change, expected) in [
            ("t", Some(scope("b")), true, new),
            (
                "s",
                Some(scope("b")),
                true,
                "-source `s`: pods of a\n+source `s`: pods of b\n",
            ),
            ("s", Some(scope("a")), false, " source `s`: pods of a\n"),
            ("s", None, false, " source `s`: pods of a\n"),
        ] {
            let planned = Planned::of(sources(&known), name, asked.as_ref());
            assert_eq!(planned.text(), expected);
            assert_eq!(planned.is_change(), is_change, "{expected}");
            assert!(planned.has_scope());
        }
        let everybodys = Planned::of(Sources::of(None), "t", None);
        assert!(everybodys.is_new() && everybodys.is_change() && !everybodys.has_scope());
        assert_eq!(everybodys.change.text(), "+source `t`: every pod\n");
    }

    #[test]
    fn a_list_belongs_to_the_program_that_wrote_it() {
        for (manager, field, expected) in [
            ("argocd-controller", "f:sources", Some("argocd-controller")),
            ("argocd-controller", "f:rollout", None),
            (names::PLUGIN_MANAGER, "f:sources", None),
            (names::CONTROLLER_MANAGER, "f:sources", None),
        ] {
            let mut sources = sources(&json!([]));
            let object = sources.object.as_mut().expect("one");
            let entry = json!({"manager": manager, "fieldsV1": {"f:spec": {field: {}}}});
            let entry = serde_json::from_value(entry).expect("an entry");
            object.metadata.managed_fields = Some(vec![entry]);
            let forced = sources.may_change(true);
            assert_eq!(forced, Ok(expected.map(str::to_owned)), "{manager}");
            let is_refused = sources.may_change(false).is_err();
            assert_eq!(is_refused, expected.is_some(), "{manager}");
        }
        assert_eq!(Sources::of(None).may_change(false), Ok(None));
    }

    #[test]
    fn sources_are_read_from_an_object_or_there_are_none() {
        let some = sources(&json!([{"name": "a"}, {"name": "b"}]));
        assert!(some.has("a") && some.has_others("a") && !some.has("c"));
        assert_eq!(
            (some.revision(), names_of(&some.list)),
            (4, vec!["a".to_owned(), "b".to_owned()])
        );
        let none = Sources::of(None);
        assert!(!none.has("a") && !none.has_others("a"));
        assert_eq!(none.revision(), 0);
    }
}
