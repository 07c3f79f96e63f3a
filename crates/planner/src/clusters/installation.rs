//! The installation of globalps in a member cluster, which is part of a revision. Pure.

use globalps_core::api::{FleetPullSecret, FleetSecretRef};
use globalps_core::names::{
    CONTROLLER_NAMESPACE, DATA_KEY, FLEET_ANNOTATION, IMAGES_SECRET, INSTALLATION_ANNOTATION,
    NAMESPACE, SECRET_TYPE,
};
use globalps_dockerconfig::validate_data;
use globalps_manifests::Manifests;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::content::source::{Data, Source};

/// What the hub installs in a member cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// Reference with tag or digest.
    pub controller_image: String,
    /// Reference with tag or digest.
    pub syncer_image: String,
    /// Content of the pull secret of both images.
    pub pull_secret: Option<Data>,
}

/// The Secret with the credentials for globalps' own images, if the spec names one.
pub fn pull_secret_of(fleet: &FleetPullSecret) -> Option<&FleetSecretRef> {
    let install = fleet.spec.install.as_ref().filter(|it| it.enabled)?;
    install.image_pull_secret.as_ref()
}

/// The installation that the spec requests. `Err`: a message about its pull secret.
pub fn requested(
    fleet: &FleetPullSecret,
    pull_secret: Option<&Source>,
) -> Result<Option<Installation>, String> {
    let Some(install) = fleet.spec.install.as_ref().filter(|it| it.enabled) else {
        return Ok(None);
    };
    let pull_secret = match (&install.image_pull_secret, pull_secret) {
        (None, _) => None,
        (Some(_), Some(Source::Found(data))) if validate_data(data.0.as_deref()).0.is_some() => {
            Some(data.clone())
        }
        (Some(reference), _) => {
            return Err(format!(
                "the Secret `{}` of `spec.install.imagePullSecret` is missing, has no valid credentials under `{}`, or can't be read",
                reference.name, reference.key
            ));
        }
    };
    Ok(Some(Installation {
        controller_image: install.controller_image.clone(),
        syncer_image: install.syncer_image.clone(),
        pull_secret,
    }))
}

impl Installation {
    /// For the annotation of a revision, without the pull secret.
    pub fn record(&self) -> String {
        json!({"controllerImage": self.controller_image, "syncerImage": self.syncer_image})
            .to_string()
    }

    /// `None`: the record is invalid.
    pub fn from_record(record: &str, pull_secret: Data) -> Option<Self> {
        let record: Value = serde_json::from_str(record).ok()?;
        let image = |key: &str| record[key].as_str().map(str::to_owned);
        Some(Self {
            controller_image: image("controllerImage")?,
            syncer_image: image("syncerImage")?,
            pull_secret: pull_secret.0.is_some().then_some(pull_secret),
        })
    }

    /// Fingerprint in an annotation of the controller's Deployment, which is applied last. It contains the hub's version because
    /// another release has other manifests.
    pub fn fingerprint(&self) -> String {
        let (controller, syncer) = (&self.controller_image, &self.syncer_image);
        format!("{} {controller} {syncer}", env!("CARGO_PKG_VERSION"))
    }

    /// All objects in the order in which they can be applied, pull secrets before the pods that need them. The Deployment is the last one: its
    /// annotation says that all others were applied. `fleet`: `NAMESPACE/NAME` of the `FleetPullSecret`.
    pub fn objects(&self, fleet: &str) -> Vec<Value> {
        let install = Manifests {
            images_pull_secret: self.pull_secret.as_ref().map(|_| IMAGES_SECRET.to_owned()),
            ..Manifests::of_images(self.controller_image.clone(), self.syncer_image.clone())
        };
        let mut objects = install.objects();
        // After the namespace, which is the first object.
        let secrets = [CONTROLLER_NAMESPACE, NAMESPACE].map(|namespace| self.secret(namespace));
        objects.splice(1..1, secrets.into_iter().flatten());
        objects.sort_by_key(|object| object["kind"] == "Deployment");
        for object in &mut objects {
            if object["kind"] == "Deployment" {
                object["metadata"]["annotations"] =
                    json!({FLEET_ANNOTATION: fleet, INSTALLATION_ANNOTATION: self.fingerprint()});
            }
        }
        objects
    }

    fn secret(&self, namespace: &str) -> Option<Value> {
        let content = self.pull_secret.as_ref()?.0.clone()?;
        Some(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": IMAGES_SECRET, "namespace": namespace,
                "labels": {"app.kubernetes.io/managed-by": "globalps"},
            },
            "type": SECRET_TYPE,
            "data": {DATA_KEY: ByteString(content)},
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(install: &Value) -> FleetPullSecret {
        let spec = json!({"secretRef": {"name": "s"}, "clusterSelector": {}, "install": install});
        let object = json!({
            "apiVersion": "globalps.io/v1alpha1", "kind": "FleetPullSecret", "metadata": {"name": "f"}, "spec": spec,
        });
        serde_json::from_value(object).unwrap()
    }

    fn images(more: &Value) -> Value {
        let mut images = json!({"enabled": true, "controllerImage": "c:1", "syncerImage": "s:1"});
        let more = more.as_object().unwrap().clone();
        images.as_object_mut().unwrap().extend(more);
        images
    }

    #[test]
    fn an_installation_requires_its_pull_secret() {
        let valid = br#"{"auths": {"quay.io": {"auth": "dTpw"}}}"#;
        let data = Source::Found(Data(Some(valid.to_vec())));
        let secret = json!({"imagePullSecret": {"name": "p"}});
        for (case, install, source, expected) in [
            ("absent from the spec", Value::Null, None, Ok(false)),
            (
                "disabled",
                images(&json!({"enabled": false})),
                None,
                Ok(false),
            ),
            ("images that need none", images(&json!({})), None, Ok(true)),
            ("its pull secret", images(&secret), Some(data), Ok(true)),
            ("not known yet", images(&secret), None, Err(())),
            ("absent", images(&secret), Some(Source::Absent), Err(())),
            (
                "another key",
                images(&secret),
                Some(Source::Found(Data(None))),
                Err(()),
            ),
        ] {
            let found = requested(&fleet(&install), source.as_ref());
            let found = found.map(|it| it.is_some()).map_err(drop);
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn pull_secrets_precede_pods_and_a_record_round_trips() {
        let pull_secret = Data(Some(b"{\"auths\":{}}".to_vec()));
        let installation = Installation {
            controller_image: "c:1".to_owned(),
            syncer_image: "s:1".to_owned(),
            pull_secret: Some(pull_secret.clone()),
        };
        let again = Installation::from_record(&installation.record(), pull_secret);
        assert_eq!(again.as_ref(), Some(&installation));
        assert_eq!(Installation::from_record("no JSON", Data(None)), None);

        let objects = installation.objects("fleet/f");
        let at = |kind: &str, namespace: &str| {
            objects.iter().position(|it| {
                it["kind"] == kind
                    && (namespace.is_empty() || it["metadata"]["namespace"] == namespace)
            })
        };
        let deployment = at("Deployment", "").unwrap();
        assert!(at("Secret", CONTROLLER_NAMESPACE).unwrap() < deployment);
        assert!(at("Secret", NAMESPACE).unwrap() < deployment);
        assert!(at("Namespace", "").unwrap() < at("Secret", "").unwrap());
        let pod = &objects[deployment]["spec"]["template"]["spec"];
        assert_eq!(pod["imagePullSecrets"], json!([{"name": IMAGES_SECRET}]));
        let config = &objects[at("GlobalPullSecret", "").unwrap()]["spec"];
        assert_eq!(
            *config,
            json!({"syncer": {"imagePullSecret": IMAGES_SECRET}})
        );
        let marks = &objects[deployment]["metadata"]["annotations"];
        assert_eq!(marks[FLEET_ANNOTATION], "fleet/f");
        assert_eq!(marks[INSTALLATION_ANNOTATION], installation.fingerprint());

        let without = Installation {
            pull_secret: None,
            ..installation
        };
        let objects = without.objects("fleet/f");
        assert!(objects.iter().all(|it| it["kind"] != "Secret"));
    }
}
