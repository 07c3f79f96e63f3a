//! Refused writes: an admission webhook that rejects some accounts' writes of one object, or never responds to them.

use anyhow::Result;
use globalps_core::names::{
    GLOBAL_SECRET, HISTORY_SECRET_PREFIX, RESTORER, ROLLED_OUT_SECRET, STATE_SECRET, SYNCER,
};
use serde_json::{Value, json};

use crate::web::{Authority, Server};
use crate::webhook::{Webhook, configuration};

/// Name of the webhook configuration.
pub const REFUSER: &str = "refuser";

/// What the controller writes in its namespace besides the objects of nodes: resource, and name or prefix.
pub const OF_CONTROLLER: [(&str, &str); 11] = [
    ("secrets", GLOBAL_SECRET),
    ("secrets", ROLLED_OUT_SECRET),
    ("secrets", STATE_SECRET),
    ("secrets", HISTORY_SECRET_PREFIX),
    ("daemonsets", SYNCER),
    ("daemonsets", RESTORER),
    ("serviceaccounts", SYNCER),
    ("roles", SYNCER),
    ("rolebindings", SYNCER),
    ("globalpullsecrets", GLOBAL_SECRET),
    ("events", ""),
];

/// An object whose writes are refused.
pub struct Refused<'a> {
    /// Resource in the plural.
    pub kind: &'a str,
    pub namespace: String,
    /// A prefix if it ends with `-` or is empty.
    pub name: String,
}

impl Refused<'_> {
    fn condition(&self) -> String {
        let name = &self.name;
        if name.is_empty() || name.ends_with('-') {
            format!("request.name.startsWith('{name}')")
        } else {
            format!("request.name == '{name}'")
        }
    }
}

/// The webhook's servers. They run until this is dropped, which must not be in asynchronous code.
pub struct Refuser {
    denier: Webhook,
    silent: Server,
    /// Authority of the silent server, which never presents a certificate.
    authority: Authority,
}

impl Refuser {
    pub fn start() -> Result<Self> {
        Ok(Self {
            denier: Webhook::start(|_| Some("writes are refused".to_owned()))?,
            silent: Server::silent()?,
            authority: Authority::new()?,
        })
    }

    /// The webhook configuration that refuses the writes of these users. `silent`: the webhook doesn't respond to them.
    pub fn configuration(&self, users: &[&str], refused: &Refused<'_>, silent: bool) -> Value {
        #[rustfmt::skip]
        let conditions = [
            ("user", format!("request.userInfo.username in {}", json!(users))),
            ("namespace", format!("request.namespace == '{}'", refused.namespace)),
            ("name", refused.condition()),
        ];
        let conditions = conditions.map(|(name, text)| json!({"name": name, "expression": text}));
        let about = json!({
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
                "resources": [refused.kind, format!("{}/status", refused.kind)]}],
            "matchConditions": conditions, "timeoutSeconds": 30,
        });
        if silent {
            configuration(REFUSER, &self.silent, self.authority.pem(), &about)
        } else {
            self.denier.configuration(REFUSER, &about)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_writes_of_the_object_by_the_users_are_refused() {
        let refuser = Refuser::start().unwrap();
        let refused = |name: &str| Refused {
            kind: "secrets",
            namespace: "n".to_owned(),
            name: name.to_owned(),
        };
        for (name, silent, condition) in [
            ("a", false, "request.name == 'a'"),
            ("a-", true, "request.name.startsWith('a-')"),
            ("", true, "request.name.startsWith('')"),
        ] {
            let found = refuser.configuration(&["u", "v"], &refused(name), silent);
            let webhook = &found["webhooks"][0];
            let conditions = webhook["matchConditions"].as_array().unwrap().iter();
            let conditions: Vec<_> = conditions.map(|it| it["expression"].clone()).collect();
            let user = r#"request.userInfo.username in ["u","v"]"#;
            assert_eq!(
                conditions,
                [user, "request.namespace == 'n'", condition],
                "{name}"
            );
            assert_eq!(webhook["failurePolicy"], "Fail");
            assert_eq!(
                webhook["rules"][0]["resources"],
                json!(["secrets", "secrets/status"])
            );
        }
    }
}
