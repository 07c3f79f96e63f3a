//! The arguments of the builders of the manifests: every option, with marks for everything that depends on values, and
//! the Helm expression that replaces each mark.

use std::collections::BTreeSet;

use globalps_core::api::{
    Attach, HostedControlPlaneRef, KubeconfigRef, ProviderPaths, SecretRef, SourceRef,
};
use globalps_core::names::{GLOBAL_SECRET, KUBECONFIG_KEY};
use globalps_manifests::{
    Allowed, HubInstall, Manifests, NamespaceAccess, OperatorAccess, openshift,
};
use serde_json::Value;

use super::template::{Mark, Marks};
use super::{KUBECONFIG, ORIGINAL, SHARDS, SPEC};

/// The custom resource definitions, and the other objects.
pub(super) fn parted(objects: Vec<Value>) -> (Vec<Value>, Vec<Value>) {
    objects
        .into_iter()
        .filter(|object| object["kind"] != "GlobalPullSecret")
        .partition(|object| object["kind"] == "CustomResourceDefinition")
}

/// The objects with every option, with marks for what depends on values.
pub(super) fn install(attach: Attach, detaches: bool) -> Vec<Value> {
    let provider = ProviderPaths {
        config_path: "/«provider-dir»/«provider-file».yaml".to_owned(),
        bin_dir: "/«provider-bin»".to_owned(),
    };
    let catalog = (
        "«catalog-namespace»".to_owned(),
        "«catalog-name»".to_owned(),
    );
    let namespace = "«namespace»";
    let mut objects = Manifests {
        namespace: namespace.to_owned(),
        original: Some(SecretRef {
            namespace: "«original-namespace»".to_owned(),
            name: "«original-name»".to_owned(),
            key: String::new(),
        }),
        sources: vec![SourceRef {
            name: "«source»".to_owned(),
            scope: None,
        }],
        image_pull_secrets: Some(NamespaceAccess {
            secret_name: "«secret»".to_owned(),
            attach,
            detaches,
        }),
        operators: Some(OperatorAccess {
            secrets: BTreeSet::from([catalog]),
        }),
        hosted_control_plane: Some(HostedControlPlaneRef {
            namespace: String::new(),
            name: String::new(),
            kubeconfig_secret_ref: KubeconfigRef {
                name: "«kubeconfig»".to_owned(),
                key: KUBECONFIG_KEY.to_owned(),
            },
        }),
        allowed: Allowed::with(
            &["«unit»".to_owned()],
            &["/«file-dir»/«file-base»".to_owned()],
            &[provider],
        ),
        ..Manifests::of_images("«controller-image»", "«syncer-image»")
    }
    .objects();
    objects.extend(openshift(namespace));
    objects
}

/// The hub with two shards, so that the second one shows what each further one has.
pub(super) fn hub(namespaces: &[&str]) -> Vec<Value> {
    HubInstall {
        image: "«hub-image»".to_owned(),
        namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
        trusted_namespaces: Vec::new(),
        shards: 2,
    }
    .objects()
}

fn text(mark: &str, expression: &str) -> (String, Mark) {
    (
        mark.to_owned(),
        Mark::Text(format!("{{{{ {expression} }}}}")),
    )
}

fn each(mark: &str, list: &str, text: &str) -> (String, Mark) {
    let (list, text) = (list.to_owned(), text.to_owned());
    (mark.to_owned(), Mark::Each { list, text })
}

/// The longer marks come before those that they contain.
pub(super) fn marks() -> Marks {
    let image = |name: &str| format!(r#"include "globalps.image" (dict "root" $ "name" "{name}")"#);
    let files = "$.Values.allow.configFiles";
    let providers = "$.Values.allow.providers";
    let catalogs = "$.Values.operators.secrets";
    vec![
        text("«namespace»", "$.Values.namespace"),
        text("«controller-image»", &image("controller")),
        text("«syncer-image»", &image("syncer")),
        text("«hub-image»", &image("hub")),
        text("«original-namespace»", &format!("{ORIGINAL}.namespace")),
        text("«original-name»", &format!("{ORIGINAL}.name")),
        text(
            "«kubeconfig»",
            &format!("{KUBECONFIG}.kubeconfigSecretRef.name"),
        ),
        each("«source»", &format!("{SPEC}.sources"), "{{ .name }}"),
        each(
            "globalps-«catalog-namespace».«catalog-name»",
            catalogs,
            "globalps-{{ .namespace }}.{{ .name }}",
        ),
        each("«catalog-name»", "$names", "{{ . }}"),
        text("«catalog-namespace»", "$namespace"),
        each("«unit»", "$.Values.allow.units", "{{ . }}"),
        each("/«file-dir»/«file-base»", files, "{{ . }}"),
        each("«file-base»", files, "{{ base . }}"),
        each("/«file-dir»", files, "{{ dir . }}"),
        each(
            "/«provider-dir»/«provider-file».yaml",
            providers,
            "{{ .configPath }}",
        ),
        each("«provider-file».yaml", providers, "{{ base .configPath }}"),
        each("/«provider-dir»", providers, "{{ dir .configPath }}"),
        each("/«provider-bin»", providers, "{{ .binDir }}"),
        each("«hub-namespace»", "$.Values.hub.namespaces", "{{ . }}"),
        each("«shard»", SHARDS, "globalps-hub-{{ . }}"),
        (
            "«secret»".to_owned(),
            Mark::Unless {
                condition: format!(r#"ne (include "globalps.secretName" $) "{GLOBAL_SECRET}""#),
                text: r#"{{ include "globalps.secretName" $ }}"#.to_owned(),
            },
        ),
    ]
}
