//! A request, and the right that it needs.

use hyper::HeaderMap;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use hyper::http::request::Parts;
use serde_json::Value;

/// One request in RBAC's terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Right {
    pub verb: String,
    /// Including the group: `deployments.apps`.
    pub resource: String,
    pub namespace: String,
    /// Empty in a rule: every name.
    pub name: String,
}

impl Right {
    /// Whether it permits what is asked.
    pub fn covers(&self, asked: &Self) -> bool {
        let name = self.name.is_empty() || self.name == asked.name;
        // A rule of a ClusterRole.
        let namespace = self.namespace.is_empty() || self.namespace == asked.namespace;
        name && namespace && (&self.verb, &self.resource) == (&asked.verb, &asked.resource)
    }
}

/// A request.
pub struct Request {
    method: String,
    pub path: String,
    query: String,
    pub headers: HeaderMap,
    /// Null if it is not JSON.
    pub body: Value,
}

impl Request {
    pub(crate) fn new(parts: Parts, body: &[u8]) -> Self {
        Self {
            method: parts.method.as_str().to_lowercase(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            headers: parts.headers,
            body: serde_json::from_slice(body).unwrap_or_default(),
        }
    }

    /// A parameter of the query; empty: it is absent.
    pub fn parameter(&self, wanted: &str) -> &str {
        let mut pairs = self.query.split('&').filter_map(|it| it.split_once('='));
        pairs
            .find(|(name, _)| *name == wanted)
            .map_or("", |it| it.1)
    }

    /// Whether it is a watch.
    pub fn is_watch(&self) -> bool {
        !self.parameter("watch").is_empty()
    }

    /// Whether it changes nothing.
    pub fn is_read(&self) -> bool {
        self.method == "get"
    }

    fn says(&self, header: HeaderName, part: &str) -> bool {
        let value = self.headers.get(header);
        value.is_some_and(|it| String::from_utf8_lossy(it.as_bytes()).contains(part))
    }

    pub(crate) fn is_table(&self) -> bool {
        self.says(ACCEPT, "as=Table")
    }

    pub(crate) fn is_metadata(&self) -> bool {
        self.says(ACCEPT, "as=PartialObjectMetadata")
    }

    pub(crate) fn is_apply(&self) -> bool {
        self.says(CONTENT_TYPE, "apply-patch")
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        !self.parameter("dryRun").is_empty() || !self.body["dryRun"].is_null()
    }

    pub(crate) fn is_review(&self) -> bool {
        self.path.ends_with("/selfsubjectaccessreviews")
    }

    /// The name that a list or watch selects; empty: every name.
    pub(crate) fn selected(&self) -> &str {
        let selector = self.parameter("fieldSelector");
        selector
            .strip_prefix("metadata.name%3D")
            .unwrap_or_default()
    }

    /// The path of the object that it reads or writes.
    pub(crate) fn object(&self) -> String {
        let name = self.body["metadata"]["name"].as_str();
        match name.filter(|_| self.method == "post") {
            Some(name) => format!("{}/{name}", self.path),
            None => self.path.trim_end_matches("/status").to_owned(),
        }
    }

    /// How the change that it makes is called: by its path, for a deletion after `DELETE `.
    pub(crate) fn change(&self) -> Option<String> {
        match &*self.method {
            "get" => None,
            "post" => Some(self.object()),
            "delete" => Some(format!("DELETE {}", self.path)),
            _ => Some(self.path.clone()),
        }
    }

    /// `None`: no request for an object.
    pub(crate) fn right(&self) -> Option<Right> {
        let mut parts = self.path.trim_start_matches('/').split('/');
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let parts: Vec<&str> = parts.skip(1).collect();
        let (namespace, parts) = match parts.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let name = parts.get(1).copied();
        // A subresource such as `pods/log`.
        let resource = match parts.get(2) {
            Some(subresource) => format!("{}/{subresource}", parts.first()?),
            None => (*parts.first()?).to_owned(),
        };
        let verb = match (self.method.as_str(), name) {
            ("get", Some(_)) => "get",
            ("get", None) if self.is_watch() => "watch",
            ("get", None) => "list",
            ("post", _) => "create",
            ("put", _) => "update",
            (other, _) => other,
        };
        Some(Right {
            verb: verb.to_owned(),
            resource: resource + &of_group(group),
            namespace: namespace.to_owned(),
            name: name.unwrap_or(self.selected()).to_owned(),
        })
    }

    /// The right that a review asks for.
    pub(crate) fn reviewed(&self) -> Right {
        let asked = &self.body["spec"]["resourceAttributes"];
        let text = |field: &str| asked[field].as_str().unwrap_or_default().to_owned();
        Right {
            verb: text("verb"),
            resource: match text("subresource").as_str() {
                "" => text("resource") + &of_group(&text("group")),
                subresource => format!("{}/{subresource}", text("resource")),
            },
            namespace: text("namespace"),
            name: text("name"),
        }
    }
}

/// The group as a suffix of a resource.
fn of_group(group: &str) -> String {
    match group {
        "" => String::new(),
        group => format!(".{group}"),
    }
}
