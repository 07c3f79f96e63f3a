//! Bounds of the fields of the custom resources, so that every program can decode what the API server accepts.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

/// Times as RFC 3339 has them. Readers ignore a time that is not plausible.
const TIME: &str = r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$";
const TIME_LENGTH: i64 = 35;
const MAX_INT32: f64 = 2_147_483_647.0;
/// The largest integer that every JSON reader represents exactly.
const MAX_INTEGER: f64 = 9_007_199_254_740_991.0;
/// Length of `100%`.
const PERCENTAGE_LENGTH: i64 = 4;

/// The definition of the resource with bounds for each time and each integer, and without fields that can be null.
pub(super) fn crd<K: CustomResourceExt>() -> CustomResourceDefinition {
    let mut crd = K::crd();
    let versions = crd.spec.versions.iter_mut();
    let schemas =
        versions.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    schemas.for_each(bound);
    crd
}

fn bound(schema: &mut JSONSchemaProps) {
    // The API server drops a null, or replaces it by the default.
    schema.nullable = None;
    if schema.format.as_deref() == Some("date-time") {
        schema.pattern = Some(TIME.to_owned());
        schema.max_length = Some(TIME_LENGTH);
    }
    let is_either = schema.x_kubernetes_int_or_string == Some(true);
    if is_either {
        schema.max_length.get_or_insert(PERCENTAGE_LENGTH);
    }
    if is_either || schema.type_.as_deref() == Some("integer") {
        let is_short = is_either || schema.format.as_deref() == Some("int32");
        let most = if is_short { MAX_INT32 } else { MAX_INTEGER };
        schema.minimum.get_or_insert(0.0);
        schema.maximum.get_or_insert(most);
    }
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|them| them.values_mut())
    {
        bound(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => bound(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(bound),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        bound(values);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::{HubInstall, Manifests};
    use super::*;

    /// Every field in the schemas of the manifests, by its path.
    fn fields() -> Vec<(String, Value)> {
        fn walk(path: &str, schema: &Value, found: &mut Vec<(String, Value)>) {
            found.push((path.to_owned(), schema.clone()));
            let properties = schema["properties"].as_object();
            for (name, property) in properties.into_iter().flatten() {
                walk(&format!("{path}.{name}"), property, found);
            }
            for key in ["items", "additionalProperties"] {
                if schema[key].is_object() {
                    walk(&format!("{path}[]"), &schema[key], found);
                }
            }
        }
        let hub = HubInstall {
            image: String::new(),
            namespaces: Vec::new(),
            trusted_namespaces: Vec::new(),
            shards: 1,
        };
        let install = Manifests::of_images(String::new(), String::new());
        let objects = install.objects().into_iter().chain(hub.objects());
        let mut found = Vec::new();
        for crd in objects.filter(|object| object["kind"] == "CustomResourceDefinition") {
            let kind = crd["spec"]["names"]["kind"].as_str().unwrap_or_default();
            for version in crd["spec"]["versions"].as_array().into_iter().flatten() {
                walk(kind, &version["schema"]["openAPIV3Schema"], &mut found);
            }
        }
        found
    }

    #[test]
    fn every_time_and_number_has_bounds_and_nothing_is_null() {
        let fields = fields();
        let (mut times, mut integers, mut either) = (0, 0, 0);
        for (path, field) in &fields {
            assert!(field["nullable"].is_null(), "{path} may be null");
            let is_either = field["x-kubernetes-int-or-string"] == true;
            if field["format"] == "date-time" {
                assert!(field["pattern"].is_string(), "{path} has no pattern");
                assert!(field["maxLength"].is_number(), "{path} has no length");
                times += 1;
            }
            if is_either {
                assert!(field["maxLength"].is_number(), "{path} has no length");
                either += 1;
            }
            if is_either || field["type"] == "integer" {
                let least = field["minimum"].as_f64();
                let most = field["maximum"].as_f64();
                let is_bounded = least.is_some_and(|least| least >= 0.0)
                    && most.is_some_and(|most| most <= MAX_INTEGER);
                assert!(is_bounded, "{path}: {field}");
                integers += 1;
            }
            assert_ne!(field["type"], "number", "{path}");
        }
        assert!(
            times >= 8 && integers >= 40 && either >= 4,
            "{times} {integers} {either}"
        );
    }
}
