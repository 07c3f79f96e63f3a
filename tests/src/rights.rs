//! Rights that Roles give, and calls that accounts made by the audit log: whether they are the same, both ways.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

/// Paths of no resource that every account may read.
const FOR_ALL: [&str; 2] = ["/api", "/apis"];

/// One verb on one object, or on all of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    user: String,
    /// Empty: in every namespace.
    namespace: String,
    /// Group, resource and subresource, with slashes; a path where a call was for no resource.
    resource: String,
    /// Empty: any.
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

/// What accounts asked for.
#[derive(Debug, Default)]
pub struct Calls {
    allowed: BTreeSet<Right>,
    refused: BTreeSet<Right>,
}

impl Calls {
    /// The calls of these users. `counts` looks at every event of the audit log, in order, and says of a refused one whether it
    /// counts.
    pub fn read(
        log: &Path,
        users: &[&str],
        mut counts: impl FnMut(&Value) -> bool,
    ) -> Result<Self> {
        let mut calls = Self::default();
        for line in fs::read_to_string(log)?.lines() {
            let event: Value = serde_json::from_str(line)?;
            let counts = counts(&event);
            let Some(call) = call(&event, users) else {
                continue;
            };
            if event["annotations"]["authorization.k8s.io/decision"] == "allow" {
                // Server-side apply of what is not there makes it.
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
        if FOR_ALL.contains(&resource.as_str()) {
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

/// A part of how a right or a call is shown, and a reason.
pub type Table<'a> = &'a [(&'a str, &'a str)];

/// Where rights and calls are not the same, and why.
pub struct Exceptions<'a> {
    /// Rights that no call needs.
    pub unused: Table<'a>,
    /// Rights that a call needs now and then, and when.
    pub sometimes: Table<'a>,
    /// Calls that are not allowed.
    pub refused: Table<'a>,
}

/// Panics where a call has no right, a right no call, or an exception is none.
pub fn assert_same(rights: &BTreeSet<Right>, calls: &Calls, exceptions: &Exceptions) {
    let told = |right: &Right, table: Table| {
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
        "no rule of ours allows: {uncovered:#?}"
    );
    let unexpected: Vec<String> = calls
        .refused
        .iter()
        .filter(|call| !told(call, exceptions.refused))
        .map(ToString::to_string)
        .collect();
    assert!(unexpected.is_empty(), "not allowed: {unexpected:#?}");
    let unused: Vec<&Right> = rights
        .iter()
        .filter(|right| !calls.allowed.iter().any(|call| right.covers(call)))
        .collect();
    let needless: Vec<String> = unused
        .iter()
        .filter(|right| !told(right, exceptions.unused) && !told(right, exceptions.sometimes))
        .map(ToString::to_string)
        .collect();
    assert!(needless.is_empty(), "nobody needs: {needless:#?}");
    for (part, reason) in exceptions.unused {
        let is_there = unused.iter().any(|right| right.to_string().contains(part));
        assert!(is_there, "it is used: {part} ({reason})");
    }
    println!(
        "{} rights, {} of them used, by {} different calls",
        rights.len(),
        rights.len() - unused.len(),
        calls.allowed.len()
    );
}

/// Every right that these objects give to service accounts, one by one.
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
        let role = role.expect("a binding of a role that is there");
        // What kubelets may do for the credential provider is no right of an account of globalps'.
        let accounts = list(&binding["subjects"]).iter();
        for subject in accounts.filter(|subject| subject["kind"] == "ServiceAccount") {
            let user = format!(
                "system:serviceaccount:{}:{}",
                text(&subject["namespace"]),
                text(&subject["name"])
            );
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
