//! The Secret with what was written into `OpenShift`'s pull secret. It is written before that, so that no leader loses what it has
//! written or replaced.

use std::collections::BTreeMap;

use globalps_core::checksum::add_checksum;
use globalps_core::names::{APPLIED_SECRET, DATA_KEY, SECRET_TYPE};
use globalps_dockerconfig::{Applied, DockerConfig, parse};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use zeroize::Zeroizing;

/// Prefix of the keys with earlier versions; a number follows.
const VERSION: &str = "version-";
/// Key with the entries of other programs that were replaced, as JSON texts by key.
const OVERRIDDEN: &str = "overridden";

/// For server-side apply, with the checksum of all its values.
pub fn encode(applied: &Applied) -> Secret {
    let newest = applied.versions.first();
    let newest = newest.map_or_else(|| DockerConfig::default().render(), DockerConfig::render);
    let mut data = BTreeMap::from([(DATA_KEY.to_owned(), newest)]);
    let earlier = applied.versions.iter().skip(1).enumerate();
    data.extend(earlier.map(|(at, version)| (format!("{VERSION}{at:03}"), version.render())));
    if !applied.overridden.is_empty() {
        let texts = applied.overridden.iter();
        let texts: BTreeMap<&str, &str> = texts
            .map(|(key, text)| (key.as_str(), text.as_str()))
            .collect();
        let texts = serde_json::to_vec(&texts).unwrap_or_default();
        data.insert(OVERRIDDEN.to_owned(), texts);
    }
    let data = data.into_iter();
    let mut secret = Secret {
        metadata: ObjectMeta {
            name: Some(APPLIED_SECRET.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE.to_owned()),
        data: Some(data.map(|(key, value)| (key, ByteString(value))).collect()),
        ..Secret::default()
    };
    add_checksum(&mut secret, &[]);
    secret
}

/// What can be read of it.
pub fn decode(secret: &Secret) -> Applied {
    let data = secret.data.iter().flatten();
    let versions = data
        .clone()
        .filter(|(key, _)| *key == DATA_KEY || key.starts_with(VERSION))
        .filter_map(|(_, value)| parse(&value.0).ok())
        .filter(|version| !version.entries().is_empty());
    let overridden = data
        .filter(|(key, _)| *key == OVERRIDDEN)
        .find_map(|(_, value)| serde_json::from_slice(&value.0).ok());
    let overridden: BTreeMap<String, String> = overridden.unwrap_or_default();
    Applied {
        versions: versions.collect(),
        overridden: overridden
            .into_iter()
            .map(|(key, text)| (key, Zeroizing::new(text)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use globalps_core::checksum::has_checksum;

    use super::*;

    #[test]
    fn what_was_applied_is_what_was_written() {
        let version = |auth: &str| {
            let text = format!(r#"{{"auths":{{"r.io":{{"auth":"{auth}"}}}}}}"#);
            parse(text.as_bytes()).unwrap()
        };
        let texts = [(
            "r.io".to_owned(),
            Zeroizing::new(r#"{ "auth":"" }"#.to_owned()),
        )];
        for applied in [
            Applied::default(),
            Applied {
                versions: vec![version("dTpw"), version("dTpx"), version("dTpy")],
                overridden: texts.into(),
            },
        ] {
            let secret = encode(&applied);
            assert!(has_checksum(&secret, &[]));
            let found = decode(&secret);
            assert_eq!(found.overridden, applied.overridden);
            let rendered = |applied: &Applied| -> Vec<Vec<u8>> {
                applied.versions.iter().map(DockerConfig::render).collect()
            };
            assert_eq!(rendered(&found), rendered(&applied));
        }
    }
}
