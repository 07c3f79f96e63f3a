//! Files as distributions and people write them, and generated ones.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::ProviderConfig;

fn ours(tokens: bool) -> Vec<Value> {
    let config = ProviderConfig {
        scopes: true,
        ..ProviderConfig::default()
    };
    config.providers("/var/lib/kubelet/.globalps/credentials.json", tokens)
}

/// EKS's style.
const BLOCK: &str = "apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
  - name: ecr-credential-provider   # theirs
    matchImages:
      - \"*.dkr.ecr.*.amazonaws.com\"
      - public.ecr.aws
    defaultCacheDuration: 12h
    apiVersion: credentialprovider.kubelet.k8s.io/v1
";

/// The style of GKE and AKS: flush indentation, with something after the list.
const FLUSH: &str = "# managed
providers:
- name: one
  args: [a, \"]\", '}']

# about two
- name: two
  env:
  - {name: A, value: \"#x\"}

# the end
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
";

const JSON: &str = r#"{
  "kind": "CredentialProviderConfig", "x": {"providers": [1]},
  "apiVersion": "kubelet.config.k8s.io/v1",
  "providers": [
    {"name": "azure", "matchImages": ["*.azurecr.io", "a]b\"c"], "args": ["/etc/kubernetes/azure.json"]}
  ]
}
"#;

#[test]
fn adding_and_removing_entries_restores_every_byte() {
    for before in [
        BLOCK.to_owned(),
        BLOCK.trim_end().to_owned(),
        BLOCK.replace('\n', "\r\n"),
        BLOCK.trim_end().replace('\n', "\r\n"),
        format!("{BLOCK}\n\n# the end\n"),
        format!("---\n{BLOCK}"),
        format!("{BLOCK}x: 1\n"),
        format!("{BLOCK}...\n"),
        FLUSH.to_owned(),
        JSON.to_owned(),
        JSON.trim_end().replace('\n', ""),
        "kind: C\nproviders: [{name: a}]\n".to_owned(),
        "kind: C\nproviders: [ {name: a}, ]\n".to_owned(),
        "kind: C\nproviders: []\nx: 1\n".to_owned(),
        "kind: C\nproviders: [{name: 'a\\', args: [\"\\\" ]\"]}]\n".to_owned(),
        "{kind: C, providers: [\n  {name: it's}, # ] no\n]}\n".to_owned(),
        "kind: C\nproviders: # theirs\n-\n  name: a\n".to_owned(),
    ] {
        for tokens in [false, true] {
            let with = add_entries(before.as_bytes(), &ours(tokens))
                .unwrap_or_else(|error| panic!("{error}: {before}"));
            let text = str::from_utf8(&with).unwrap();
            let (theirs, both) = (parsed(&before).unwrap(), parsed(text).unwrap());
            let mut expected = theirs["providers"].as_array().unwrap().clone();
            expected.extend(ours(tokens));
            assert_eq!(both["providers"], Value::Array(expected), "{text}");
            assert_eq!(add_entries(&with, &ours(tokens)).unwrap(), with, "twice");
            let other = add_entries(&with, &ours(!tokens)).unwrap();
            assert_eq!(
                other,
                add_entries(before.as_bytes(), &ours(!tokens)).unwrap()
            );
            let without = remove_entries(&with).unwrap();
            assert_eq!(String::from_utf8_lossy(&without), before);
            assert_eq!(
                remove_entries(before.as_bytes()).unwrap(),
                before.as_bytes()
            );
        }
    }
}

#[test]
fn unsupported_files_are_not_changed() {
    for bad in [
        "",
        "providers: [",
        "providers:\n",
        "providers:\n# none\nkind: C\n",
        "providers:\n  name: a\n",
        "providers: none\n",
        "kind: C\n",
        "- providers: []\n",
        "{\"kind\": \"C\"}",
        "a: &a [{name: x}]\nproviders: *a\n",
        "providers:\n  - name: a\n  - args: |\n      x\n      # y\n",
        "providers:\n  - name: a\n    - name: b\n",
        "providers: []\n---\nproviders: []\n",
        // This comma would be indistinguishable from an added one.
        "providers: [{name: a},]\n",
    ] {
        assert!(add_entries(bad.as_bytes(), &ours(true)).is_err(), "{bad}");
    }
    assert_eq!(
        add_entries(b"\xff", &ours(true)),
        Err(SharedFileError::NotText)
    );
}

#[test]
fn the_error_names_the_line_and_nothing_of_the_content() {
    let error = add_entries(
        b"providers:\n  - name: a\n    x: [s3cret\nk: v\n",
        &ours(true),
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("line ") && !error.contains("s3cret"),
        "{error}"
    );
}

/// The file as `yq -i` and Ansible rewrite it.
#[test]
fn a_managed_entry_is_found_by_its_name_however_it_is_written() {
    let spaced = |text: &str| text.replace("\":", "\": ").replace(",\"", ", \"");
    let changed = |text: &str| text.replace("\"0s\"", "\"9s\"");
    for before in [BLOCK, FLUSH, JSON, "kind: C\nproviders: []\n"] {
        let with = add_entries(before.as_bytes(), &ours(true)).unwrap();
        let text = String::from_utf8(with).unwrap();
        for (text, expected) in [
            (spaced(&text), spaced(before)),
            (changed(&text), before.to_owned()),
        ] {
            let without = remove_entries(text.as_bytes()).unwrap();
            assert_eq!(String::from_utf8_lossy(&without), expected);
        }
    }
    let in_lines = "kind: C\nproviders:\n- name: one\n  args:\n  - a\n# of globalps\n- apiVersion: v1\n  args:\n  - x\n  name: globalps-credential-provider\n\n# two\n- name: two\nx: 1\n";
    let without = remove_entries(in_lines.as_bytes()).unwrap();
    let expected = "kind: C\nproviders:\n- name: one\n  args:\n  - a\n# of globalps\n\n# two\n- name: two\nx: 1\n";
    assert_eq!(String::from_utf8_lossy(&without), expected);
    let only = "kind: C\nproviders:\n  - name: globalps-credential-provider\n    args: []\n";
    let without = remove_entries(only.as_bytes()).unwrap();
    assert!(has_providers(only.as_bytes()) && !has_providers(&without));
    // A form that is not known.
    let anchor = "kind: C\nproviders: [*a]\nx: &a {name: globalps-credential-provider}\n";
    assert!(remove_entries(anchor.as_bytes()).is_err());
    let flow = "kind: C\nproviders: [{name: globalps-credential-provider, args: []}]\n";
    let error = remove_entries(flow.as_bytes()).unwrap_err();
    assert!(
        matches!(error, SharedFileError::Form { line: 2, .. }),
        "{error}"
    );
}

#[test]
fn scopes_are_not_added_to_a_version_that_has_none() {
    for (version, tokens, expected) in [
        ("v1beta1", true, false),
        ("v1beta1", false, true),
        ("v1", true, true),
    ] {
        let file = format!(
            "kind: C\napiVersion: kubelet.config.k8s.io/{version}\nproviders:\n- name: a\n"
        );
        let added = add_entries(file.as_bytes(), &ours(tokens));
        assert_eq!(added.is_ok(), expected, "{version} {tokens}");
    }
}

#[test]
fn entries_added_after_managed_ones_stay() {
    for (before, expected) in [
        ("providers: []", "providers: [{name: b}]"),
        ("providers: [{name: a}]", "providers: [{name: a},{name: b}]"),
    ] {
        let with = add_entries(before.as_bytes(), &ours(true)).unwrap();
        let text = String::from_utf8(with).unwrap();
        let theirs = text.trim_end_matches(']').to_owned() + ",{name: b}]";
        let without = remove_entries(theirs.as_bytes()).unwrap();
        assert_eq!(String::from_utf8_lossy(&without), expected);
    }
}

/// The foreign entries were deleted meanwhile, which leaves null for the list.
#[test]
fn managed_entries_are_removed_even_if_no_other_is_left() {
    let with = add_entries(b"kind: C\nproviders:\n- {name: a}\n", &ours(true)).unwrap();
    let text = String::from_utf8(with)
        .unwrap()
        .replace("- {name: a}\n", "");
    let without = remove_entries(text.as_bytes()).unwrap();
    assert_eq!(String::from_utf8_lossy(&without), "kind: C\nproviders:\n");
}

/// A foreign file: its entries in one of the styles.
fn file() -> impl Strategy<Value = String> {
    let word = "[ -~]{0,12}";
    let entry = (word, prop::collection::vec(word, 0..3)).prop_map(|(name, images)| {
        json!({"name": name, "matchImages": images, "apiVersion": "credentialprovider.kubelet.k8s.io/v1"})
    });
    let entries = prop::collection::vec(entry, 0..4);
    (entries, 0..4_u8, 0..3_usize, any::<bool>()).prop_map(|(entries, form, indent, is_cut)| {
        let document = json!({"kind": "CredentialProviderConfig", "providers": entries});
        let text = match form {
            0 => document.to_string(),
            1 => serde_json::to_string_pretty(&document).unwrap() + "\n",
            2 if !entries.is_empty() => {
                let indent = " ".repeat(indent);
                let items = entries.iter().map(|entry| format!("{indent}- {entry}\n"));
                format!(
                    "kind: C\nproviders: # x\n{}\n# end\nx: 1\n",
                    items.collect::<String>()
                )
            }
            _ => serde_saphyr::to_string(&document).unwrap(),
        };
        if is_cut {
            text.trim_end().to_owned()
        } else {
            text
        }
    })
}

proptest! {
    #[test]
    fn foreign_bytes_stay(before in file(), tokens: bool) {
        // Unsupported styles are rejected; the table above lists those that must be supported.
        if let Ok(with) = add_entries(before.as_bytes(), &ours(tokens)) {
            prop_assert_eq!(String::from_utf8(remove_entries(&with).unwrap()).unwrap(), before.clone());
            let (theirs, both) = (parsed(&before).unwrap(), parsed(str::from_utf8(&with).unwrap()).unwrap());
            let theirs = theirs["providers"].as_array().cloned().unwrap_or_default();
            prop_assert_eq!(&both["providers"].as_array().unwrap()[..theirs.len()], &theirs[..]);
        }
    }
}
