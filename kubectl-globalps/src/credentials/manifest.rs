//! Parses files with credentials: a config.json, or manifests of Secrets as YAML or JSON. Pure.

use globalps_core::names;
use globalps_dockerconfig::{DockerConfig, validate_bytes};
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;

use crate::error::{Failure, Result};
use crate::secret::additional::refuse_invalid;

/// Unparsed credentials from a file.
pub(crate) struct CredentialsDocument {
    /// Name of the Secret; `None` if the file is not a manifest.
    pub(crate) secret: Option<String>,
    pub(crate) bytes: Vec<u8>,
}

/// The credentials in a file, if they are valid.
pub(crate) fn proposed(bytes: &[u8]) -> Result<DockerConfig> {
    valid(&content(bytes)?)
}

/// The credentials, if they are valid.
pub(crate) fn valid(bytes: &[u8]) -> Result<DockerConfig> {
    let (config, findings) = validate_bytes(bytes);
    refuse_invalid(names::ADDITIONAL_SECRET, &findings)?;
    Ok(config.unwrap_or_default())
}

/// The content of the only Secret; if there are several, of the additional pull secret.
pub(crate) fn content(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut contents = contents(bytes)?;
    if contents.len() > 1 {
        contents.retain(|content| content.secret.as_deref() == Some(names::ADDITIONAL_SECRET));
    }
    contents.pop().map(|content| content.bytes).ok_or_else(|| {
        Failure::new(
            format!(
                "there are several Secrets in the file, and none is `{}`",
                names::ADDITIONAL_SECRET
            ),
            HINT,
        )
    })
}

const HINT: &str =
    "the file must be a manifest of Secret `additional-pull-secret`, or a config.json";

/// Every Secret with registry credentials in a file; a file that is not a manifest is treated as a config.json.
pub(crate) fn contents(bytes: &[u8]) -> Result<Vec<CredentialsDocument>> {
    let manifests = manifests(bytes);
    if manifests.is_empty() {
        return Ok(vec![CredentialsDocument {
            secret: None,
            bytes: bytes.to_vec(),
        }]);
    }
    let is_secret = |manifest: &Value| manifest["kind"] == "Secret";
    let secrets: Vec<Secret> = manifests
        .into_iter()
        .filter(is_secret)
        .map(serde_json::from_value)
        .collect::<Result<_, _>>()
        // The error quotes the file, which holds credentials, so it goes no further.
        .map_err(|_| Failure::new("a Secret in the file is not a valid manifest", HINT))?;
    if secrets.is_empty() {
        return Err(Failure::new("there is no Secret in the file", HINT));
    }
    let contents: Vec<CredentialsDocument> = secrets.into_iter().filter_map(content_of).collect();
    if contents.is_empty() {
        return Err(Failure::new(
            format!("no Secret in the file has a key `{}`", names::DATA_KEY),
            "the key holds a config.json; `kubectl globalps add --dry-run=client -o yaml` shows the form",
        ));
    }
    Ok(contents)
}

/// The objects in a file, including items of a List; empty if the file is not a manifest.
fn manifests(bytes: &[u8]) -> Vec<Value> {
    let documents: Vec<Value> = match serde_json::from_slice(bytes) {
        Ok(value) => vec![value],
        Err(_) => std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| serde_saphyr::from_multiple(text).ok())
            .unwrap_or_default(),
    };
    let items = |mut document: Value| match document.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if document["kind"] == "List" => items,
        _ => vec![document],
    };
    documents
        .into_iter()
        .filter(|document| document.get("kind").is_some())
        .flat_map(items)
        .collect()
}

/// `None` if the Secret has no registry credentials.
fn content_of(secret: Secret) -> Option<CredentialsDocument> {
    let plain = secret
        .string_data
        .and_then(|mut data| data.remove(names::DATA_KEY));
    let encoded = secret
        .data
        .and_then(|mut data| data.remove(names::DATA_KEY));
    Some(CredentialsDocument {
        secret: secret.metadata.name,
        bytes: plain
            .map(String::into_bytes)
            .or(encoded.map(|bytes| bytes.0))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `{"auths":{"r":{"auth":"dTpw"}}}`
    const DATA: &str = "eyJhdXRocyI6eyJyIjp7ImF1dGgiOiJkVHB3In19fQ==";

    #[test]
    fn a_proposal_may_be_a_manifest_or_a_config() {
        for text in [
            r#"{"auths":{"r":{"auth":"dTpw"}}}"#.to_owned(),
            format!(r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"x"}},"data":{{".dockerconfigjson":"{DATA}"}}}}"#),
            "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\nstringData:\n  .dockerconfigjson: |\n    {\"auths\":{\"r\":{\"auth\":\"dTpw\"}}}\n".to_owned(),
            format!("kind: Namespace\n---\nkind: Secret\nmetadata: {{name: other}}\ndata: {{}}\n---\nkind: Secret\nmetadata: {{name: additional-pull-secret}}\ndata:\n  .dockerconfigjson: {DATA}\n"),
            format!("kind: List\nitems:\n- kind: Secret\n  metadata: {{name: x}}\n  data: {{.dockerconfigjson: {DATA}}}\n"),
            format!("kind: Secret\nmetadata: {{name: additional-pull-secret}}\ndata: {{.dockerconfigjson: {DATA}}}\n---\nkind: Secret\nmetadata: {{name: x}}\ndata: {{.dockerconfigjson: e30=}}\n"),
        ] {
            let config = proposed(text.as_bytes()).expect(&text);
            assert_eq!(config.render(), br#"{"auths":{"r":{"auth":"dTpw"}}}"#, "{text}");
        }
    }

    #[test]
    fn every_secret_of_a_file_with_credentials_is_found() {
        let text = format!(
            "kind: Secret\nmetadata: {{name: a}}\ndata: {{.dockerconfigjson: {DATA}}}\n---\nkind: Secret\nmetadata: {{name: b}}\ndata: {{x: e30=}}\n---\nkind: Secret\nmetadata: {{name: c}}\ndata: {{.dockerconfigjson: e30=}}\n"
        );
        let names: Vec<_> = contents(text.as_bytes())
            .expect("Secrets")
            .into_iter()
            .map(|content| content.secret.unwrap_or_default())
            .collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn a_proposal_that_is_no_use_is_refused_without_a_quote() {
        #[rustfmt::skip]
        let cases = [
            ("hunter2", "the additional pull secret is not valid: not JSON (line 1, column 1)"),
            ("kind: ConfigMap\ndata: {x: hunter2}\n", "there is no Secret in the file"),
            ("kind: Secret\ndata: hunter2\n", "a Secret in the file is not a valid manifest"),
            ("kind: Secret\ndata: {x: aHVudGVyMg==}\n", "no Secret in the file has a key `.dockerconfigjson`"),
            (
                "kind: Secret\nstringData: {.dockerconfigjson: one}\n---\nkind: Secret\nstringData: {.dockerconfigjson: two}\n",
                "there are several Secrets in the file, and none is `additional-pull-secret`",
            ),
            (r#"{"auths":{}}"#, "the additional pull secret is not valid: `auths` has no entries"),
        ];
        for (text, expected) in cases {
            let failure = proposed(text.as_bytes()).expect_err(text);
            assert_eq!(failure.message, expected);
        }
    }
}
