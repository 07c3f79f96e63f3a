//! A pull of an image: which credentials the kubelet tries, in its order, and who owns them. Pure.

use globalps_dockerconfig::{
    Crio, DockerConfig, Explanation, Finding, ImageError, Try, attempts, explain, parse, shown_key,
    validate_bytes,
};
use globalps_provider::{Content, PodIdentity, offers};
use serde_json::{Value, json};

use crate::diagnose::tried::{NoReference, Origin, Tried, line_of_crio, lines_of, shown};
use crate::secret::findings;
use crate::secret::scope::in_force;
use crate::terminal::escapes;

/// A file or Secret with credentials.
pub(crate) struct Keyring {
    /// Its name for users: `Secret default/team`.
    pub name: String,
    pub bytes: Vec<u8>,
    pub origin: Origin,
}

/// Everything known about a pull.
#[derive(Default)]
pub(crate) struct Asked {
    pub image: String,
    /// Secrets of the pod or of its service account. The kubelet merges them into one list.
    pub of_pod: Vec<Keyring>,
    /// The kubelet's credentials file, which is for every pod of the node.
    pub of_node: Option<Keyring>,
    /// The credential provider's content, if the node uses the provider.
    pub provided: Option<Provided>,
    /// The pod or service account that pulls.
    pub puller: Puller,
    /// The pull secret of globalps in the pod's namespace, if there is one.
    pub of_namespace: Option<OfNamespace>,
    pub no_reference: Option<NoReference>,
    /// The namespace of the puller is being deleted.
    pub is_terminating: bool,
    /// Whether a pod's Secret that this user may not read is a note instead of an error.
    pub may_hide: bool,
    /// Further notes: missing Secrets, a lagging node, the kubelet's message.
    pub notes: Vec<String>,
}

/// The content for nodes with the credential provider.
pub(crate) struct Provided {
    pub content: Content,
    /// Number of nodes with the provider, and with the file; 0 if unknown.
    pub nodes: (usize, usize),
}

/// The Secret of globalps in a namespace.
pub(crate) struct OfNamespace {
    pub secret: String,
    /// The pod, or each new pod, refers to it.
    pub is_referenced: bool,
    /// Sources with a scope whose credentials it contains.
    pub sources: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Puller {
    /// Any pod.
    #[default]
    Unknown,
    /// A static pod, which has no service account.
    Static,
    Pod(PodIdentity),
}

impl Puller {
    fn identity(&self) -> Option<&PodIdentity> {
        match self {
            Self::Pod(identity) => Some(identity),
            Self::Unknown | Self::Static => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Unknown => "any pod".to_owned(),
            Self::Static => "a static pod".to_owned(),
            Self::Pod(pod) => format!(
                "a pod of `{}` with service account `{}`",
                pod.namespace, pod.service_account
            ),
        }
    }
}

/// A source with a scope that has a credential for the image.
struct Scoped {
    source: String,
    /// The scope.
    who: String,
    allowed: bool,
}

pub(crate) struct Answer {
    image: String,
    repository: String,
    /// Whether a kubelet can parse the node's file; otherwise it uses none of its entries.
    accepted: bool,
    tries: Vec<Tried>,
    /// In a cluster with the provider on some nodes and the file on others: the number of nodes with each, and what
    /// nodes with the file try.
    by_file: Option<((usize, usize), Vec<Tried>)>,
    puller: Puller,
    of_namespace: Option<OfNamespace>,
    scoped: Vec<Scoped>,
    crio: Crio,
    findings: Vec<(String, Finding)>,
    notes: Vec<String>,
    /// A Secret of the pod that prevents the kubelet from pulling, and who has to change it.
    unreadable: Option<(String, Origin)>,
    /// Whether the pod has no Secrets and there are no notes.
    is_plain: bool,
}

impl Answer {
    pub(crate) fn of(asked: Asked) -> Result<Self, ImageError> {
        let is_plain = asked.of_pod.is_empty() && asked.notes.is_empty();
        let mut findings = Vec::new();
        let mut tries = Vec::new();
        let mut notes = asked.notes;
        let mut unreadable = None;
        let (mut all, mut owners) = (Vec::new(), Vec::new());
        for source in &asked.of_pod {
            let config = read(source, &mut findings);
            if !config
                .as_ref()
                .is_some_and(DockerConfig::is_kubelet_readable)
            {
                notes.push(format!(
                    "{} can't be read by a kubelet, so it does not pull at all",
                    source.name
                ));
                unreadable.get_or_insert_with(|| (source.name.clone(), source.origin.clone()));
            }
            for entry in config.unwrap_or_default().entries() {
                all.push(entry.clone());
                owners.push((entry.key().to_owned(), source));
            }
        }
        for found in explain(&DockerConfig::new(all), &asked.image)?.tries {
            // For equal keys, the kubelet tries the first one first.
            let at = owners.iter().position(|(key, _)| *key == found.key);
            let owner = at.map(|at| owners.remove(at).1);
            let (source, origin) = match owner {
                Some(ring) => (ring.name.as_str(), ring.origin.clone()),
                None => ("", Origin::Pod),
            };
            tries.push(tried(source, &found, origin));
        }
        let (of_node, config) = match &asked.of_node {
            Some(node) => (node.name.as_str(), read(node, &mut findings)),
            None => ("", Some(DockerConfig::default())),
        };
        let Explanation {
            repository,
            accepted,
            tries: with_node,
            mut crio,
        } = explain(&config.clone().unwrap_or_default(), &asked.image)?;
        let with_file = with_node
            .iter()
            .map(|found| tried(of_node, found, Origin::Globalps));
        let mut by_file = None;
        let mut scoped = Vec::new();
        if let Some(provided) = &asked.provided {
            if asked.of_node.is_some() {
                let tries = tries.iter().cloned().chain(with_file).collect();
                by_file = Some((provided.nodes, tries));
            }
            let pod = asked.puller.identity();
            for offer in offers(&provided.content, &asked.image, pod)? {
                let (source, origin) = match offer.source {
                    Some(source) => (
                        format!("source `{source}` by the credential provider"),
                        Origin::Scoped(source),
                    ),
                    None => ("the credential provider".to_owned(), Origin::Globalps),
                };
                tries.push(tried(&source, &offer.attempt, origin));
            }
            scoped = scoped_sources(&provided.content, &asked.image, pod)?;
            // CRI-O reads the node's credentials file, which has none of these credentials.
            crio.clear();
        } else {
            tries.extend(with_file);
        }
        if unreadable.is_some() {
            (tries, by_file) = (Vec::new(), None);
        }
        Ok(Self {
            image: asked.image,
            repository,
            accepted: accepted && config.is_some(),
            tries,
            by_file,
            scoped,
            puller: asked.puller,
            of_namespace: asked.of_namespace,
            crio: match config {
                Some(_) => crio.first().cloned().unwrap_or(Crio::None),
                None => Crio::Error {
                    key: String::new(),
                    why: "the file is not a credentials file",
                },
            },
            findings,
            notes,
            unreadable,
            is_plain,
        })
    }

    pub(crate) fn has_some(&self) -> bool {
        !self.tries.is_empty()
    }

    /// In the kubelet's order.
    pub(crate) fn tries(&self) -> &[Tried] {
        &self.tries
    }

    pub(crate) fn repository(&self) -> &str {
        &self.repository
    }

    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn unreadable(&self) -> Option<(&str, &Origin)> {
        let found = self.unreadable.as_ref();
        found.map(|(source, origin)| (source.as_str(), origin))
    }

    /// A source with a credential for the image but not for this pod, and its scope.
    pub(crate) fn excluding(&self) -> Option<(&str, &str)> {
        let is_allowed = self.scoped.iter().any(|scoped| scoped.allowed);
        let first = self.scoped.first().filter(|_| !is_allowed)?;
        Some((&first.source, &first.who))
    }

    pub(crate) fn json(&self) -> Value {
        let tries = |tries: &[Tried]| -> Vec<Value> {
            let with_source = |found: &Tried| {
                let mut found_json = json!({"key": found.key, "username": found.username});
                if !self.is_plain || !found.source.is_empty() {
                    found_json["source"] = json!(found.source);
                }
                found_json
            };
            tries.iter().map(with_source).collect()
        };
        let crio = match &self.crio {
            Crio::Credential(Try { key, credential }) => {
                json!({"outcome": "credential", "key": shown_key(key), "username": shown(&credential.username)})
            }
            Crio::None => json!({"outcome": "none", "key": "", "username": ""}),
            Crio::Error { key, .. } => {
                json!({"outcome": "error", "key": shown_key(key), "username": ""})
            }
        };
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|(source, finding)| {
                let mut value = json!(finding);
                if !source.is_empty() {
                    value["source"] = json!(source);
                }
                value
            })
            .collect();
        let mut answer = json!({
            "image": self.image,
            "repository": self.repository,
            "kubelet": {"accepted": self.accepted, "tries": tries(&self.tries)},
            "crio": crio,
            "findings": findings,
        });
        if let Some(((_, number), by_file)) = &self.by_file {
            answer["byFile"] = json!({"nodes": number, "tries": tries(by_file)});
        }
        if self.puller != Puller::Unknown {
            let allowed = self.scoped.iter().find(|scoped| scoped.allowed);
            let scope = allowed.or(self.scoped.first());
            answer["scope"] = json!(scope.map(
                |Scoped {
                     source,
                     who,
                     allowed,
                 }| { json!({"source": source, "allowed": allowed, "for": who}) }
            ));
        }
        if let Some(found) = &self.of_namespace {
            answer["imagePullSecret"] = json!({
                "name": found.secret, "referenced": found.is_referenced, "sources": found.sources,
            });
        }
        if !self.notes.is_empty() {
            answer["notes"] = json!(self.notes);
        }
        answer
    }

    pub(crate) fn text(&self) -> String {
        let mut lines = vec![format!("repository: {}", self.repository)];
        if let Some(((provider, file), _)) = self.by_file {
            lines.push(format!(
                "nodes:      {provider} with the credential provider, {file} with the credentials file"
            ));
        }
        match (self.accepted, self.tries.as_slice()) {
            (false, []) => lines.push("kubelet:    ignores the whole file".to_owned()),
            (accepted, tries) => {
                lines.extend(lines_of("kubelet:   ", tries));
                if !accepted {
                    lines.push("  and ignores the node's whole file".to_owned());
                }
            }
        }
        if let Some((_, by_file)) = &self.by_file {
            lines.extend(lines_of("by file:   ", by_file));
        }
        lines.extend(self.scoped.iter().map(|scoped| {
            let covers = if scoped.allowed {
                "covers"
            } else {
                "does not cover"
            };
            let Scoped { source, who, .. } = scoped;
            match &self.puller {
                Puller::Unknown => {
                    format!("scope:      source `{source}` is for {who}: see `--pod`")
                }
                puller => format!(
                    "scope:      source `{source}` is for {who}, which {covers} {}",
                    puller.text()
                ),
            }
        }));
        lines.push(line_of_crio(&self.crio));
        lines.extend(self.notes.iter().map(|note| format!("note:       {note}")));
        let findings: Vec<Finding> = self.findings.iter().map(|(_, f)| f.clone()).collect();
        format!("{}\n{}", escapes::lines(&lines), findings::text(&findings))
    }
}

/// Every source with a scope and a credential for the image, whether or not it is for this pod.
fn scoped_sources(
    content: &Content,
    image: &str,
    pod: Option<&PodIdentity>,
) -> Result<Vec<Scoped>, ImageError> {
    let mut found = Vec::new();
    for scoped in &content.scoped {
        if !attempts(&[&scoped.config], image)?.is_empty() {
            found.push(Scoped {
                source: scoped.source.clone(),
                who: in_force(&scoped.scope),
                allowed: pod.is_some_and(|pod| scoped.scope.covers(pod)),
            });
        }
    }
    Ok(found)
}

/// The entries; `None` if the content is not a credentials file.
fn read(source: &Keyring, findings: &mut Vec<(String, Finding)>) -> Option<DockerConfig> {
    let found = validate_bytes(&source.bytes).1;
    findings.extend(
        found
            .into_iter()
            .map(|finding| (source.name.clone(), finding)),
    );
    parse(&source.bytes).ok()
}

fn tried(source: &str, found: &Try, origin: Origin) -> Tried {
    Tried {
        origin,
        credential: found.credential.clone(),
        source: source.to_owned(),
        key: shown_key(&found.key),
        username: shown(&found.credential.username),
    }
}

#[cfg(test)]
mod tests;
