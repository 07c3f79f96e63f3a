//! Commands that a message tells the user to run, quoted for a shell.

use crate::error::quoted;

/// What `add` should write.
pub(crate) struct Login<'a> {
    pub key: &'a str,
    /// Empty if unknown.
    pub user: &'a str,
    /// Source with a scope; empty: the additional pull secret.
    pub source: &'a str,
}

impl<'a> Login<'a> {
    pub(crate) fn new(key: &'a str) -> Self {
        Self {
            key,
            user: "",
            source: "",
        }
    }
}

/// `flag`: for the check with the registry; may be empty.
pub(crate) fn add(login: &Login<'_>, flag: &str) -> String {
    let source = match login.source {
        "" => String::new(),
        source => format!(" --source {}", quoted(source)),
    };
    let user = match login.user {
        "" => "USER".to_owned(),
        user => quoted(user),
    };
    let space = if flag.is_empty() { "" } else { " " };
    let key = quoted(login.key);
    format!("kubectl globalps add {key}{source} -u {user}{space}{flag} --wait --retry-pods")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn add_is_one_command_of_a_shell() {
        for (key, user, source, flag, expected) in [
            ("quay.io", "", "", "", "quay.io -u USER"),
            (
                "10.0.0.1:5051",
                "puller",
                "",
                "--insecure",
                "10.0.0.1:5051 -u puller --insecure",
            ),
            ("quay.io", "u", "team", "", "quay.io --source team -u u"),
            (
                "*.example.com",
                "robot$ci",
                "",
                "",
                "'*.example.com' -u 'robot$ci'",
            ),
            ("quay.io", "it's", "", "", r"quay.io -u 'it'\''s'"),
        ] {
            let login = Login { key, user, source };
            assert_eq!(
                add(&login, flag),
                format!("kubectl globalps add {expected} --wait --retry-pods")
            );
        }
    }
}
