//! `install -f`: the settings of a `GlobalPullSecret`, and the permissions that they need.

use std::path::Path;

use globalps_core::api::{Attach, GlobalPullSecret, GlobalPullSecretSpec};
use globalps_core::names;
use globalps_manifests::{Allowed, Manifests, NamespaceAccess};
use kube::Resource as _;
use serde_json::{Value, json};

use crate::credentials::file::read;
use crate::error::{Failure, Result, page};

/// A `GlobalPullSecret` from a file.
#[derive(Debug)]
pub(crate) struct Settings {
    pub spec: GlobalPullSecretSpec,
    /// The object as written; fields that it omits keep their defaults.
    written: Value,
    pub namespace: Option<String>,
}

impl Settings {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        Self::of(&read(path)?).map_err(|why| {
            Failure::new(
                format!("`{}` is no GlobalPullSecret: {why}", path.display()),
                format!(
                    "`kubectl get globalpullsecret global-pull-secret -n kube-system -o yaml` shows one; {} lists its fields",
                    page("api.md")
                ),
            )
        })
    }

    fn of(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8")?;
        let all: Vec<Value> =
            serde_saphyr::from_multiple(text).map_err(|_| "it is neither YAML nor JSON")?;
        let [object] = all.as_slice() else {
            return Err(format!("it contains {} objects", all.len()));
        };
        let kind = GlobalPullSecret::kind(&());
        if object["kind"] != *kind {
            return Err(format!("its kind is not `{kind}`"));
        }
        let name = object["metadata"]["name"].as_str();
        if name.is_some_and(|name| name != names::GLOBAL_SECRET) {
            return Err(format!("its name must be `{}`", names::GLOBAL_SECRET));
        }
        let written = match &object["spec"] {
            Value::Null => json!({}),
            spec => spec.clone(),
        };
        let spec = serde_json::from_value(written.clone());
        Ok(Self {
            spec: spec.map_err(|error| format!("its spec can't be read: {error}"))?,
            written,
            namespace: object["metadata"]["namespace"].as_str().map(str::to_owned),
        })
    }

    /// Adds what the settings need: Roles for sources and original, allow-lists for unit and paths.
    pub(crate) fn grant(&self, manifests: &mut Manifests) {
        let spec = &self.spec;
        if let Some(namespace) = &self.namespace {
            manifests.namespace.clone_from(namespace);
        }
        manifests.sources.clone_from(&spec.sources);
        manifests.original.clone_from(&spec.original.secret_ref);
        manifests
            .hosted_control_plane
            .clone_from(&spec.original.hosted_control_plane);
        manifests.delivery = Some(spec.kubelet.delivery);
        let allowed = &manifests.allowed;
        let mut providers = allowed.providers().to_vec();
        let own = spec.kubelet.credential_provider.iter();
        providers.extend(own.filter(|it| !allowed.providers().contains(it)).cloned());
        let known = Allowed::default().providers().len();
        let with = |all: &[String], one: &String| [all, std::slice::from_ref(one)].concat();
        manifests.allowed = Allowed::with(
            &with(allowed.units(), &spec.kubelet.unit),
            &with(allowed.config_files(), &spec.kubelet.config_file),
            &providers[known..],
        );
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.spec.image_pull_secrets.enabled
    }

    /// Name of the Secret in namespaces, and how pods refer to it.
    pub(crate) fn namespaces(&self) -> (Option<&str>, Option<Attach>) {
        let settings = &self.spec.image_pull_secrets;
        let name = settings.enabled.then_some(settings.secret_name.as_str());
        (name, settings.attach)
    }

    /// `otherwise`: how pods refer to the Secret if the settings don't say.
    pub(crate) fn access(&self, otherwise: Attach) -> Option<NamespaceAccess> {
        let (name, attach) = self.namespaces();
        Some(NamespaceAccess {
            secret_name: name?.to_owned(),
            attach: attach.unwrap_or(otherwise),
            detaches: false,
        })
    }

    /// The object to apply. `pull_secret`: for the images of globalps.
    pub(crate) fn object(&self, namespace: &str, pull_secret: Option<&String>) -> Value {
        let mut spec = self.written.clone();
        if let Some(name) = pull_secret
            && spec["syncer"]["imagePullSecret"].is_null()
        {
            spec["syncer"]["imagePullSecret"] = json!(name);
        }
        json!({
            "apiVersion": GlobalPullSecret::api_version(&()),
            "kind": GlobalPullSecret::kind(&()),
            "metadata": {"name": names::GLOBAL_SECRET, "namespace": namespace},
            "spec": spec,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
apiVersion: globalps.io/v1alpha1
kind: GlobalPullSecret
metadata: {name: global-pull-secret, namespace: creds}
spec:
  sources: [{name: team-a, scope: {namespaces: [a]}}]
  original: {secretRef: {namespace: team, name: orig}}
  kubelet:
    unit: own.service
    configFile: /own/config.json
    credentialProvider: {configPath: /p/c.yaml, binDir: /p/bin}
    delivery: CredentialProvider
";

    #[test]
    fn the_settings_say_what_is_granted_and_allowed() {
        let settings = Settings::of(FILE.as_bytes()).expect("settings");
        let mut manifests = Manifests::of_images("c", "s");
        settings.grant(&mut manifests);
        assert_eq!(manifests.namespace, "creds");
        assert_eq!(manifests.sources.len(), 1);
        assert!(
            manifests
                .allowed
                .units()
                .contains(&"own.service".to_owned())
        );
        let files = manifests.allowed.config_files();
        assert!(files.contains(&"/own/config.json".to_owned()));
        let providers = manifests.allowed.providers();
        assert_eq!(providers.len(), Allowed::default().providers().len() + 1);
        let objects: Vec<String> = manifests
            .objects()
            .iter()
            .filter_map(|object| Some(object["metadata"]["name"].as_str()?.to_owned()))
            .collect();
        for role in [
            "globalps-controller-sources",
            "globalps-controller-original",
        ] {
            assert!(objects.contains(&role.to_owned()), "{role}");
        }
        let object = settings.object("creds", Some(&"images".to_owned()));
        assert_eq!(object["spec"]["syncer"]["imagePullSecret"], "images");
        assert_eq!(
            object["spec"]["rollout"],
            Value::Null,
            "it keeps its default"
        );
    }

    #[test]
    fn another_file_is_refused_with_the_reason() {
        for (file, expected) in [
            ("kind: Secret", "its kind is not `GlobalPullSecret`"),
            (
                "kind: GlobalPullSecret\nmetadata: {name: x}",
                "its name must be `global-pull-secret`",
            ),
            ("a: [", "it is neither YAML nor JSON"),
            (
                "kind: GlobalPullSecret\n---\nkind: GlobalPullSecret",
                "it contains 2 objects",
            ),
        ] {
            assert_eq!(Settings::of(file.as_bytes()).expect_err(file), expected);
        }
        let broken = "kind: GlobalPullSecret\nspec: {sources: 3}";
        let why = Settings::of(broken.as_bytes()).expect_err("broken");
        assert!(why.starts_with("its spec can't be read"), "{why}");
    }
}
