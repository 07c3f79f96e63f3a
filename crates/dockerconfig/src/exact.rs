//! What a reader needs that takes members by their exact names, as `HyperShift`'s controller does when it merges. Kubelets ignore case,
//! and take the entries of a repeated member together.

use super::entry::folds_to;
use super::finding::{Code, Finding};
use super::json::Json;

const NAME: &str = "auths";

/// Why such a reader has other entries than a kubelet, or none; `None`: both have the same, or it is no JSON.
pub fn by_exact_name(bytes: &[u8]) -> Option<Finding> {
    let members = Json::parse(bytes).ok()?.members();
    let names = members.map(|(name, _)| name);
    let names: Vec<String> = names.filter(|name| folds_to(name, NAME)).collect();
    let finding = |message| {
        let hint = "write `auths` once, in lower case, with all entries in it";
        Some(Finding::error(Code::AuthsName, "", message, hint))
    };
    match &names[..] {
        [name] if name == NAME => None,
        [] => None,
        [_] => finding(
            "`auths` is not in lower case: kubelets read it, HyperShift's controller crashes",
        ),
        _ => finding(
            "`auths` is there more than once: kubelets read all of them, HyperShift's controller the last one",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auths_is_there_once_by_its_exact_name() {
        for (text, expected) in [
            (r#"{"auths":{}}"#, ""),
            (r#"{"other":1,"auths":{"Auths":{}}}"#, ""),
            (r#"{"other":1}"#, ""),
            ("x", ""),
            (r#"{"Auths":{}}"#, "not in lower case"),
            (r#"{"auth\u017f":{}}"#, "not in lower case"),
            (r#"{"auths":{},"AUTHS":{}}"#, "more than once"),
            (r#"{"auths":{},"auths":{}}"#, "more than once"),
        ] {
            let found = by_exact_name(text.as_bytes());
            let message = found.map(|finding| finding.message).unwrap_or_default();
            assert!(
                message.contains(expected) && message.is_empty() == expected.is_empty(),
                "{text}: {message}"
            );
        }
    }
}
