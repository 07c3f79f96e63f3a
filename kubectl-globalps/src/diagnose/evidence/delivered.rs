//! Which of a pod's credentials come from the Secret of its namespace, if namespaces get pull secrets.

use globalps_core::api::{Attach, GlobalPullSecret, ImagePullSecrets};
use globalps_core::names;
use globalps_core::namespaces::{Selected, Selection, config_of, is_marked_excluded, parts_of};
use globalps_dockerconfig::{DockerConfig, attempts};
use globalps_provider::{Content, Delivery};
use k8s_openapi::api::core::v1::{LocalObjectReference, Pod, Secret};
use kube::Api;

use super::keyrings::secrets;
use crate::cluster::Cluster;
use crate::cluster::namespaces::{NamespaceSeen, is_ours};
use crate::diagnose::check::{names_account, restore_delivery};
use crate::diagnose::owner::kept;
use crate::diagnose::pull::{Asked, Keyring, OfNamespace, Puller};
use crate::diagnose::tried::{NoReference, Obstacle, Origin};
use crate::error::{Result, allowed};
use crate::secret::additional::data_of;
use crate::target::pull_secret::content_of;

/// Delivery to a namespace.
pub(crate) struct Delivered {
    settings: ImagePullSecrets,
    attach: Attach,
    namespace: String,
    selected: Selected,
    /// The admission policy that adds the reference to new pods is missing.
    lacks_policy: bool,
    /// The state of the Secret in the cluster.
    secret: Found,
}

/// The Secret of this name in the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The Secret belongs to globalps. If it is hidden from this user, its expected content is shown.
    Ours,
    Absent,
    Foreign,
}

impl Delivered {
    /// `None` if namespaces get no Secrets, or the namespace is being deleted.
    pub(crate) async fn observe(
        cluster: &Cluster<'_>,
        gps: Option<&GlobalPullSecret>,
        lacks_policy: bool,
        namespace: &str,
        seen: &NamespaceSeen,
    ) -> Result<Option<Self>> {
        let gps = gps.filter(|_| !seen.is_terminating);
        let Some(gps) = gps.filter(|gps| gps.spec.image_pull_secrets.enabled) else {
            return Ok(None);
        };
        let settings = gps.spec.image_pull_secrets.clone();
        let Ok(selection) = Selection::new(&settings) else {
            return Ok(None);
        };
        let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), namespace);
        let name = &settings.secret_name;
        let doing = format!("see whether Secret `{namespace}/{name}` exists");
        let secret = cluster.call(&doing, secrets.get_metadata_opt(name)).await;
        let secret = match allowed(secret)? {
            Some(Some(secret)) if !is_ours(&secret) => Found::Foreign,
            Some(None) => Found::Absent,
            Some(Some(_)) | None => Found::Ours,
        };
        let is_marked = is_marked_excluded(&seen.labels, &seen.annotations);
        Ok(Some(Self {
            selected: selection.covers(namespace, || seen.labels.clone(), is_marked),
            attach: attach_of(gps),
            lacks_policy,
            namespace: namespace.to_owned(),
            settings,
            secret,
        }))
    }

    pub(crate) fn secret_name(&self) -> &str {
        &self.settings.secret_name
    }

    fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.settings.secret_name)
    }

    /// Whether the Secret has the content that globalps delivers, so that it need not be read.
    pub(crate) fn has_content(&self) -> bool {
        self.selected == Selected::Yes && self.secret == Found::Ours
    }

    /// Whether new pods get the reference from the admission policy, not from their service account.
    pub(crate) fn is_added_to_new_pods(&self) -> bool {
        self.selected == Selected::Yes && self.attach == Attach::Admission && !self.lacks_policy
    }

    /// The content of the Secret, one part per source. The kubelet merges them into one list.
    pub(crate) fn keyrings(&self, content: &Content) -> Vec<Keyring> {
        keyrings(content, &self.namespace, &self.title())
    }

    pub(crate) fn of_namespace(
        &self,
        content: Option<&Content>,
        is_referenced: bool,
    ) -> OfNamespace {
        let parts = content.map(|content| parts_of(content, &self.namespace));
        let sources = content.zip(parts).map(|(content, parts)| {
            let scoped = parts.iter().filter_map(|at| content.scoped.get(*at));
            scoped.map(|scoped| scoped.source.clone()).collect()
        });
        OfNamespace {
            secret: self.settings.secret_name.clone(),
            is_referenced,
            sources: sources.unwrap_or_default(),
        }
    }

    /// Why the pod has no credentials of its namespace's Secret, and the hint; `None` if it has them. `pod`: `None` if
    /// it doesn't exist yet.
    pub(crate) fn note(
        &self,
        puller: &Puller,
        is_referenced: bool,
        pod: Option<Existing<'_>>,
    ) -> Option<String> {
        let (title, namespace) = (self.title(), &self.namespace);
        if self.selected != Selected::Yes {
            return Some(format!(
                "namespace `{namespace}` gets no pull secret: it is excluded, or `spec.imagePullSecrets.namespaceSelector` does not match it"
            ));
        }
        match self.secret {
            Found::Foreign => {
                return Some(format!(
                    "Secret {title} is not globalps' own, so it does not have what globalps delivers"
                ));
            }
            Found::Absent => {
                return Some(format!(
                    "globalps has not created Secret {title} yet; see `kubectl globalps status --namespaces`"
                ));
            }
            Found::Ours if is_referenced => return None,
            Found::Ours => {}
        }
        let account = match puller {
            Puller::Static => {
                return Some(format!(
                    "a static pod has no reference to Secret {title}: only its node's credentials apply"
                ));
            }
            Puller::Pod(identity) => identity.service_account.as_str(),
            Puller::Unknown => "",
        };
        let how = match pod {
            None => String::new(),
            Some(Existing { name, kept: None }) => {
                format!(": `kubectl -n {namespace} delete pod {name}`, or restart what owns it")
            }
            Some(Existing {
                kept: Some(why), ..
            }) => format!(", but there is no command for such pods: {why}"),
        };
        let recreate = |since: &str| {
            format!(
                "the pod has no reference to Secret {title}: it was created before {since}, and must be recreated{how}"
            )
        };
        Some(match (self.obstacle(account), self.attach, pod) {
            (Some(Obstacle::Policy), ..) => {
                let then = if pod.is_some() {
                    format!("; then the pod must be recreated{how}")
                } else {
                    String::new()
                };
                let policy = names::IMAGE_PULL_SECRETS;
                format!(
                    "new pods get no reference to Secret {title}: MutatingAdmissionPolicy `{policy}` or its binding does not exist; {}{then}",
                    restore_delivery(self.secret_name())
                )
            }
            (Some(Obstacle::ServiceAccount), ..) => format!(
                "`spec.imagePullSecrets.serviceAccounts` does not name `{account}`, so its pods have no reference to Secret {title}"
            ),
            (None, Attach::Admission, _) => recreate("the admission policy was in force"),
            (None, Attach::ServiceAccounts, Some(_)) => {
                recreate(&format!("service account `{account}` had the reference"))
            }
            (None, Attach::ServiceAccounts, None) => format!(
                "service account `{account}` has no reference to Secret {title} yet; see `kubectl globalps status --namespaces`"
            ),
        })
    }

    /// Why a new pod with this service account would have no reference to the Secret.
    fn obstacle(&self, account: &str) -> Option<Obstacle> {
        match self.attach {
            Attach::Admission if self.lacks_policy => Some(Obstacle::Policy),
            Attach::ServiceAccounts if !names_account(&self.settings, account) => {
                Some(Obstacle::ServiceAccount)
            }
            Attach::Admission | Attach::ServiceAccounts => None,
        }
    }

    /// `None` if the Secret has no credential for the image. `puller`: a pod that doesn't refer to the Secret.
    fn no_reference(&self, puller: &Puller, content: &Content, image: &str) -> Option<NoReference> {
        let Puller::Pod(identity) = puller else {
            return None;
        };
        let config = config_of(content, &parts_of(content, &self.namespace));
        let has_some = attempts(&[&config], image).is_ok_and(|found| !found.is_empty());
        (self.has_content() && has_some).then(|| NoReference {
            namespace: self.namespace.clone(),
            secret: self.settings.secret_name.clone(),
            obstacle: self.obstacle(&identity.service_account),
        })
    }
}

/// The Secrets to which a pod, or its service account, refers.
pub(crate) struct OfPod<'a> {
    pub namespace: &'a str,
    pub references: Vec<LocalObjectReference>,
    /// `None` if the pod doesn't exist yet.
    pub existing: Option<Existing<'a>>,
}

/// A pod that exists.
#[derive(Clone, Copy)]
pub(crate) struct Existing<'a> {
    pub name: &'a str,
    /// See [`kept`].
    pub kept: Option<&'static str>,
}

impl<'a> Existing<'a> {
    pub(crate) fn of(name: &'a str, pod: &Pod) -> Self {
        Self {
            name,
            kept: kept(pod),
        }
    }
}

impl OfPod<'_> {
    /// In the order of the references. Each credential in the Secret of globalps is shown with its source.
    pub(crate) async fn keyrings(
        self,
        cluster: &Cluster<'_>,
        delivered: Option<&Delivered>,
        global: Option<&Secret>,
        asked: &mut Asked,
    ) -> Result<()> {
        let Some(delivered) = delivered else {
            return secrets(cluster, self.namespace, &self.references, asked).await;
        };
        let bytes = global.and_then(|global| data_of(global, names::DATA_KEY));
        let content = match global.zip(bytes) {
            Some((global, bytes)) => Some(content_of(global, bytes, Delivery::ConfigFile)?),
            None => None,
        };
        let mut references = self.references;
        let is_own = |reference: &LocalObjectReference| reference.name == delivered.secret_name();
        let is_added = self.existing.is_none() && delivered.is_added_to_new_pods();
        if is_added && !references.iter().any(is_own) {
            references.push(LocalObjectReference {
                name: delivered.secret_name().to_owned(),
            });
        }
        let at = references.iter().position(is_own);
        let is_referenced = at.is_some();
        match (at, &content) {
            (Some(at), Some(content)) if delivered.has_content() => {
                let (before, after) = (&references[..at], &references[at + 1..]);
                if !before.is_empty() {
                    secrets(cluster, self.namespace, before, asked).await?;
                }
                asked.of_pod.extend(delivered.keyrings(content));
                if !after.is_empty() {
                    secrets(cluster, self.namespace, after, asked).await?;
                }
            }
            _ => secrets(cluster, self.namespace, &references, asked).await?,
        }
        let note = delivered.note(&asked.puller, is_referenced, self.existing);
        asked.notes.extend(note);
        if let (Some(_), false, Some(content)) = (self.existing, is_referenced, &content) {
            asked.no_reference = delivered.no_reference(&asked.puller, content, &asked.image);
        }
        asked.of_namespace = Some(delivered.of_namespace(content.as_ref(), is_referenced));
        Ok(())
    }
}

/// Whether only the admission policy adds the reference to new pods.
pub(crate) fn needs_policy(gps: &GlobalPullSecret) -> bool {
    gps.spec.image_pull_secrets.enabled && attach_of(gps) == Attach::Admission
}

/// According to the controller's report or, without one, to the spec.
pub(crate) fn attach_of(gps: &GlobalPullSecret) -> Attach {
    let status = gps.status.as_ref();
    let reported = status.and_then(|status| status.image_pull_secrets.as_ref());
    match reported.map(|reported| reported.attach.as_str()) {
        Some("ServiceAccounts") => Attach::ServiceAccounts,
        Some("Admission") => Attach::Admission,
        _ => {
            let wanted = gps.spec.image_pull_secrets.attach;
            wanted.unwrap_or(Attach::Admission)
        }
    }
}

fn keyrings(content: &Content, namespace: &str, title: &str) -> Vec<Keyring> {
    let parts = parts_of(content, namespace);
    let mut left = config_of(content, &parts).entries().to_vec();
    let mut found = Vec::new();
    for scoped in parts.iter().filter_map(|at| content.scoped.get(*at)) {
        let has = |key: &str| {
            scoped
                .config
                .entries()
                .iter()
                .any(|entry| entry.key() == key)
        };
        let (own, others) = left.into_iter().partition(|entry| has(entry.key()));
        left = others;
        let name = format!("Secret {title}, source `{}`", scoped.source);
        found.push((name, Origin::Scoped(scoped.source.clone()), own));
    }
    found.push((format!("Secret {title}"), Origin::Globalps, left));
    let rings = found
        .into_iter()
        .filter(|(_, _, entries)| !entries.is_empty());
    rings
        .map(|(name, origin, entries)| Keyring {
            name,
            bytes: DockerConfig::new(entries).render(),
            origin,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use globalps_dockerconfig::{Entry, parse};
    use globalps_provider::{Pattern, PodIdentity, Scope, ScopedConfig};

    fn config(entries: &[(&str, &str)]) -> DockerConfig {
        let entries: Vec<String> = entries
            .iter()
            .map(|(key, auth)| format!(r#""{key}":{{"auth":"{auth}"}}"#))
            .collect();
        parse(format!(r#"{{"auths":{{{}}}}}"#, entries.join(",")).as_bytes()).expect("credentials")
    }

    fn content() -> Content {
        let pattern = |text: &str| Pattern::try_from(text.to_owned()).expect("a pattern");
        Content {
            config: config(&[("quay.io", "dTpw"), ("ghcr.io", "dTpw")]),
            scoped: vec![ScopedConfig {
                source: "team".to_owned(),
                scope: Scope {
                    namespaces: vec![pattern("team-*")],
                    service_accounts: Vec::new(),
                },
                config: config(&[("quay.io", "djpw")]),
            }],
            ..Content::default()
        }
    }

    #[test]
    fn each_credential_of_the_secret_is_shown_with_its_source() {
        for (namespace, expected) in [
            (
                "other",
                vec![("Secret other/s", vec!["quay.io", "ghcr.io"])],
            ),
            (
                "team-a",
                vec![
                    ("Secret team-a/s, source `team`", vec!["quay.io"]),
                    ("Secret team-a/s", vec!["ghcr.io"]),
                ],
            ),
        ] {
            let found = keyrings(&content(), namespace, &format!("{namespace}/s"));
            assert_eq!(found.len(), expected.len(), "{namespace}");
            for (ring, (name, mut keys)) in found.iter().zip(expected) {
                assert_eq!(ring.name, name);
                let config = parse(&ring.bytes).expect("credentials");
                let mut found: Vec<&str> = config.entries().iter().map(Entry::key).collect();
                found.sort_unstable();
                keys.sort_unstable();
                assert_eq!(found, keys, "{name}");
            }
        }
    }

    #[test]
    fn a_pod_without_the_reference_gets_the_reason_and_a_hint() {
        use Attach::{Admission, ServiceAccounts};
        let of = |account: &str| {
            Puller::Pod(PodIdentity {
                namespace: "a".to_owned(),
                service_account: account.to_owned(),
            })
        };
        let yes = Selected::Yes;
        let delivered = |attach, selected, secret| Delivered {
            settings: ImagePullSecrets::default(),
            attach,
            namespace: "a".to_owned(),
            selected,
            lacks_policy: false,
            secret,
        };
        #[rustfmt::skip]
        let cases = [
            (delivered(Admission, yes, Found::Ours), of("x"), true, Some("p"), ""),
            (
                delivered(Admission, yes, Found::Ours),
                of("x"),
                false,
                Some("p"),
                "it was created before the admission policy was in force, and must be recreated: `kubectl -n a delete pod p`",
            ),
            (
                delivered(Admission, Selected::Excluded, Found::Absent),
                of("x"),
                false,
                Some("p"),
                "namespace `a` gets no pull secret",
            ),
            (
                delivered(Admission, yes, Found::Foreign),
                of("x"),
                true,
                Some("p"),
                "Secret a/global-pull-secret is not globalps' own",
            ),
            (
                delivered(Admission, yes, Found::Absent),
                of("x"),
                true,
                Some("p"),
                "has not created Secret a/global-pull-secret yet",
            ),
            (delivered(Admission, yes, Found::Ours), Puller::Static, false, Some("p"), "a static pod has no reference"),
            (
                delivered(ServiceAccounts, yes, Found::Ours),
                of("default"),
                false,
                Some("p"),
                "before service account `default` had the reference",
            ),
            (delivered(ServiceAccounts, yes, Found::Ours), of("builder"), false, Some("p"), "does not name `builder`"),
            (
                delivered(ServiceAccounts, yes, Found::Ours),
                of("default"),
                false,
                None,
                "has no reference to Secret a/global-pull-secret yet",
            ),
        ];
        for (delivered, puller, is_referenced, pod, expected) in cases {
            let existing = |kept| pod.map(|name| Existing { name, kept });
            let note = delivered.note(&puller, is_referenced, existing(None));
            let note = note.unwrap_or_default();
            assert_eq!(note.is_empty(), expected.is_empty(), "{note}");
            assert!(note.contains(expected), "{note}: {expected}");
            let note = delivered.note(&puller, is_referenced, existing(Some("why")));
            let note = note.unwrap_or_default();
            assert!(!note.contains("delete pod"), "nobody recreates it: {note}");
        }
        let without_policy = Delivered {
            lacks_policy: true,
            ..delivered(Admission, yes, Found::Ours)
        };
        assert!(!without_policy.is_added_to_new_pods());
        let existing = Existing {
            name: "p",
            kept: None,
        };
        for (pod, expected) in [(None, false), (Some(existing), true)] {
            let note = without_policy.note(&of("x"), false, pod);
            let note = note.unwrap_or_default();
            assert!(note.contains("install --deliver-to-namespaces"), "{note}");
            assert_eq!(note.contains("delete pod p"), expected, "{note}");
        }
    }
}
