//! The Operator Lifecycle Manager's objects and the catalogs' pull secrets, reduced to what the plan needs.

use globalps_core::reasons::{Reason, ReasonAndMessage};

use std::collections::BTreeSet;

use globalps_dockerconfig::{Finding, validate_data};
use kube::{Resource, ResourceExt as _};

use super::olm::OlmObject;
use crate::content::source::{Data, Source};
use crate::targets::{Id, version};

/// Label of the copies of a `ClusterServiceVersion` in other namespaces, where no operator runs.
pub const COPIED_LABEL: &str = "olm.copiedFrom";

/// Maximum number of names that are kept of an object, and maximum length of each: who may write it may write more.
const NAMES: usize = 64;
const NAME_LIMIT: usize = 253;

/// These names, as far as they can be names of objects.
fn names(all: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    let names = all.into_iter();
    let names = names.filter(|name| (1..=NAME_LIMIT).contains(&name.len()));
    names.take(NAMES).collect()
}

/// No object has a longer name, so nothing is found by it.
fn shortened(mut name: String) -> String {
    if name.len() > NAME_LIMIT {
        name = String::new();
    }
    name
}

fn id(object: &OlmObject) -> Id {
    let metadata = object.meta();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&metadata.namespace), text(&metadata.name))
}

/// A `Subscription`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionView {
    /// Namespace and name.
    pub id: Id,
    /// Its `resourceVersion`.
    pub version: u64,
    /// Namespace and name of the catalog that it installs from.
    pub catalog: Id,
    /// Names of the versions that are installed, or being installed, in its namespace.
    pub csvs: BTreeSet<String>,
}

impl From<OlmObject> for SubscriptionView {
    fn from(object: OlmObject) -> Self {
        Self {
            id: id(&object),
            version: version(&object),
            csvs: names([object.status.current_csv, object.status.installed_csv]),
            catalog: (
                shortened(object.spec.source_namespace),
                shortened(object.spec.source),
            ),
        }
    }
}

/// A `CatalogSource`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogView {
    /// Namespace and name.
    pub id: Id,
    /// Its `resourceVersion`.
    pub version: u64,
    /// Names of its pull secrets.
    pub secrets: BTreeSet<String>,
}

impl From<OlmObject> for CatalogView {
    fn from(object: OlmObject) -> Self {
        let (id, version) = (id(&object), version(&object));
        Self {
            id,
            version,
            secrets: names(object.spec.secrets),
        }
    }
}

/// A `ClusterServiceVersion`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvView {
    /// Namespace and name.
    pub id: Id,
    /// Its `resourceVersion`.
    pub version: u64,
    /// Of the object.
    pub uid: String,
    /// Service accounts of its Deployments.
    pub accounts: BTreeSet<String>,
    /// It is a copy from the namespace in which the operator is installed.
    pub is_copied: bool,
}

impl From<OlmObject> for CsvView {
    fn from(object: OlmObject) -> Self {
        let (id, version) = (id(&object), version(&object));
        let uid = object.meta().uid.clone().unwrap_or_default();
        let is_copied =
            object.status.reason == "Copied" || object.labels().contains_key(COPIED_LABEL);
        let deployments = object.spec.install.spec.deployments.into_iter();
        let accounts =
            deployments.map(|deployment| deployment.spec.template.spec.service_account_name);
        Self {
            id,
            version,
            is_copied,
            uid,
            accounts: names(accounts.map(|name| {
                if name.is_empty() {
                    "default".to_owned()
                } else {
                    name
                }
            })),
        }
    }
}

/// A pull secret that a catalog names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogSecret {
    /// As it was last read.
    pub source: Source,
    /// Increases with each change of the content. A new leader starts again at 1.
    pub edition: u64,
    /// Reason and message; `None`: it can be copied.
    pub error: Option<ReasonAndMessage>,
}

impl CatalogSecret {
    /// `edition`: of the previous content.
    pub fn new((namespace, name): &Id, source: Source, edition: u64) -> Self {
        let title = format!("Secret `{namespace}/{name}`");
        let error = match &source {
            Source::Absent => Some((Reason::SourceMissing, format!("{title} does not exist"))),
            Source::Forbidden => Some((
                Reason::SourceForbidden,
                format!(
                    "the controller may not read {title}: `kubectl globalps install --operators {namespace}/{name}` allows it"
                ),
            )),
            Source::Unreadable(reason) => Some((Reason::SourceUnreadable, reason.clone())),
            Source::Found(Data(data)) => {
                let (_, findings) = validate_data(data.as_deref());
                let errors = findings.iter().filter(|found| found.is_error());
                let errors: Vec<String> = errors.map(Finding::to_string).collect();
                let message = || format!("{title} is invalid: {}", errors.join("; "));
                (!errors.is_empty()).then(|| (Reason::SourceInvalid, message()))
            }
        };
        Self {
            source,
            edition: edition + 1,
            error,
        }
    }

    /// Bytes of the copies. Empty if it can't be copied.
    pub fn content(&self) -> Vec<u8> {
        match &self.source {
            Source::Found(Data(Some(bytes))) => bytes.clone(),
            _ => Vec::new(),
        }
    }
}
