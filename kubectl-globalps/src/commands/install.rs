//! `install`: applies the manifests after a preview, or prints them.

use globalps_core::api::{
    Attach, DeliveryType, GlobalPullSecret, GlobalPullSecretSpec, HostedControlPlaneRef,
    KubeconfigRef, SecretRef, SourceRef,
};
use globalps_core::names;
use globalps_manifests::{Allowed, Manifests};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Resource as _;
use serde_json::Value;

use crate::change::restarts;
use crate::change::restore_configuration;
use crate::cli::{Connection, ControlPlane, Install};
use crate::cluster::{Cluster, controller};
use crate::error::{Exit, Failure, Result};
use crate::install::delivery;
use crate::install::installer::Installer;
use crate::install::namespace_access;
use crate::install::objects::put_all;
use crate::install::operator_access;
use crate::install::preview::{is_printed, preview, print};
use crate::install::settings::Settings;
use crate::install::unreadable_configuration;
use crate::target::pull_secret;
use crate::terminal::printer::Printer;
use crate::view::status::is_removal_held;

pub(super) async fn run(args: &Install, flags: &Connection, printer: &Printer) -> Result<Exit> {
    if args.restore_configuration {
        // Boxed, because every command would carry its large future.
        return Box::pin(restore_configuration::run(flags, printer)).await;
    }
    let mut manifests = asked(args, flags);
    let settings = args.filename.as_deref().map(Settings::read).transpose()?;
    if let Some(settings) = &settings {
        settings.grant(&mut manifests);
    }
    if is_printed(args.applying.output.as_ref(), args.applying.dry_run)? {
        if manifests.controller_image.is_empty() || manifests.syncer_image.is_empty() {
            return Err(missing_images(&manifests, "the cluster is not read"));
        }
        manifests.image_pull_secrets = namespace_access::printed(args);
        manifests.operators = operator_access::printed(args);
        if let Some(settings) = &settings {
            manifests.image_pull_secrets = settings.access(Attach::Admission);
        }
        let objects = with_settings(&manifests, settings.as_ref());
        print(printer, &objects, args.applying.output.as_ref())?;
        return Ok(Exit::Done);
    }
    let cluster = Cluster::connect(flags, printer)?;
    let configures = complete(&mut manifests, args, settings.as_ref(), &cluster).await?;
    if manifests.delivery == Some(DeliveryType::None) && manifests.image_pull_secrets.is_none() {
        printer.warning(
            "neither nodes nor namespaces get credentials; add `--deliver-to-namespaces` to deliver to namespaces",
        );
    }
    let mut objects = with_settings(&manifests, settings.as_ref());
    if !configures {
        objects.retain(|object| object["kind"] != *GlobalPullSecret::kind(&()));
    }
    let notes = restarts::of_installation(&cluster, &manifests).await;
    if let Some(exit) = preview(&cluster, &objects, &[], &args.applying, &notes).await? {
        return Ok(exit);
    }
    put_all(&cluster, objects, names::CONTROLLER, args.applying.timeout).await?;
    printer.note(match pull_secret::additional(&cluster).await {
        // The Secret may not be readable, or other sources may exist.
        Ok(None) if manifests.sources.is_empty() => {
            "globalps is installed; add a registry with `kubectl globalps add REGISTRY -u USER --password-stdin`"
        }
        _ => "globalps is installed; `kubectl globalps status` shows the rollout",
    });
    Ok(Exit::Done)
}

/// The manifests, with the settings of a file in place of the flags.
fn with_settings(manifests: &Manifests, settings: Option<&Settings>) -> Vec<Value> {
    let mut objects = manifests.objects();
    if let Some(settings) = settings {
        objects.retain(|object| object["kind"] != *GlobalPullSecret::kind(&()));
        let pull_secret = manifests.images_pull_secret.as_ref();
        objects.push(settings.object(&manifests.namespace, pull_secret));
    }
    objects
}

/// The manifests that the flags describe.
fn asked(args: &Install, flags: &Connection) -> Manifests {
    let units: Vec<_> = args.allow_unit.iter().map(|it| it.0.clone()).collect();
    let files = args.allow_config_file.iter().map(|it| it.0.clone());
    let files: Vec<_> = files.collect();
    let providers: Vec<_> = args.allow_provider.iter().map(|it| it.0.clone()).collect();
    Manifests {
        controller_image: args.controller_image.clone().unwrap_or_default(),
        syncer_image: args.syncer_image.clone().unwrap_or_default(),
        images_pull_secret: args.pull_secret.as_ref().map(|name| name.0.clone()),
        namespace: flags.pull_secret_namespace.clone(),
        original: args.original.as_ref().map(|original| original.0.clone()),
        sources: args.source.iter().map(|name| named(name)).collect(),
        delivery: args.delivery.map(Into::into),
        hosted_control_plane: args
            .hosted_control_plane
            .as_ref()
            .zip(args.kubeconfig_secret.clone())
            .map(
                |(ControlPlane(namespace, name), secret)| HostedControlPlaneRef {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    kubeconfig_secret_ref: KubeconfigRef {
                        name: secret,
                        key: names::KUBECONFIG_KEY.to_owned(),
                    },
                },
            ),
        allowed: Allowed::with(&units, &files, &providers),
        ..Manifests::default()
    }
}

/// Whether a flag changes the `GlobalPullSecret`.
fn asks(args: &Install) -> bool {
    args.original.is_some()
        || args.hosted_control_plane.is_some()
        || !args.source.is_empty()
        || args.delivery.is_some()
        || args.deliver_to_namespaces.is_some()
        || !args.operators.is_empty()
}

/// Fills in installed values for missing flags: the images, the sources and the original. Returns whether the
/// `GlobalPullSecret` is applied too.
async fn complete(
    manifests: &mut Manifests,
    args: &Install,
    settings: Option<&Settings>,
    cluster: &Cluster<'_>,
) -> Result<bool> {
    let deployment = controller::deployment(cluster, controller::Program::Controller).await?;
    Installer::may_install(deployment.as_ref(), args.applying.force_conflicts)?;
    let home = controller::home(cluster, deployment.as_ref()).await?;
    let found = home.as_ref().map(|home| match home {
        controller::Home::Watched(home) => (home, "globalps is installed for"),
        controller::Home::Left(home) => (home, "objects of globalps are in"),
    });
    if let Some((home, what)) = found.filter(|(home, _)| **home != manifests.namespace) {
        let asked = &manifests.namespace;
        return Err(Failure::new(
            format!("{what} namespace `{home}`, not for `{asked}`"),
            format!(
                "install with `--pull-secret-namespace {home}`; to move it, run `kubectl globalps uninstall --pull-secret-namespace {home}` first"
            ),
        ));
    }
    if manifests.images_pull_secret.is_none() {
        manifests.images_pull_secret = deployment.as_ref().and_then(images_pull_secret);
    }
    if manifests.controller_image.is_empty() || manifests.syncer_image.is_empty() {
        let installed = deployment.as_ref().and_then(images);
        let (controller, syncer) =
            installed.ok_or_else(|| missing_images(manifests, "globalps is not installed"))?;
        for (image, installed) in [
            (&mut manifests.controller_image, controller),
            (&mut manifests.syncer_image, syncer),
        ] {
            if image.is_empty() {
                *image = installed;
            }
        }
    }
    let asks = asks(args) || settings.is_some();
    let (config, is_readable) = unreadable_configuration::installed(cluster, asks).await?;
    let known = config.as_ref().map(|config| config.spec.kubelet.delivery);
    let is_delivery_chosen = delivery::choose(manifests, known, cluster).await?;
    let (delivers, known) = match settings {
        Some(settings) => (
            settings.namespaces(),
            config.as_ref().filter(|_| settings.is_enabled()),
        ),
        None => (namespace_access::asked(args), config.as_ref()),
    };
    manifests.image_pull_secrets = namespace_access::chosen(delivers, known, cluster).await?;
    // An upgrade alone changes nothing that is held.
    let is_asked = !args.operators.is_empty() || args.deliver_to_namespaces.is_some();
    if is_asked || args.delivery.is_some() || !manifests.sources.is_empty() {
        let is_held = config.as_ref().is_some_and(is_removal_held);
        restore_configuration::refuse_held(is_held)?;
    }
    let config = config.map(|config| config.spec);
    let spec = settings.map(|settings| &settings.spec).or(config.as_ref());
    let is_enabled = spec.is_some_and(|spec| spec.operators.enabled);
    manifests.operators = operator_access::chosen(args, is_enabled, cluster).await?;
    // Syncers whose image needs the pull secret could not start without it.
    let needed = manifests.images_pull_secret.clone();
    let Some(config) = config else {
        let configures = asks || needed.is_some() || is_delivery_chosen;
        let deleted = restore_configuration::must_not_be_deleted(cluster).await;
        return match deleted {
            Err(failure) if asks || args.pull_secret.is_some() => Err(failure),
            deleted => Ok(configures && deleted.is_ok()),
        };
    };
    if settings.is_some() {
        return Ok(is_readable);
    }
    allows(&manifests.allowed, &config)?;
    let known = config.syncer.image_pull_secret.clone();
    let is_given = args.pull_secret.is_some();
    let lacks_it = needed.is_some() && (known.is_none() || is_given && known != needed);
    if !is_given {
        manifests.syncer_images_pull_secret = known;
    }
    let is_granted = manifests.image_pull_secrets.is_some() || manifests.operators.is_some();
    let configures = is_readable && (asks || lacks_it || is_granted);
    if configures {
        extend(manifests, config);
    }
    Ok(configures)
}

/// `why`: the reason why the images can't be taken from the installation.
fn missing_images(manifests: &Manifests, why: &str) -> Failure {
    let images = [
        (
            &manifests.controller_image,
            "the controller's",
            "`--controller-image`",
        ),
        (&manifests.syncer_image, "the syncer's", "`--syncer-image`"),
    ];
    let missing = images.iter().filter(|(image, ..)| image.is_empty());
    let (whose, flags): (Vec<&str>, Vec<&str>) =
        missing.map(|(_, whose, flag)| (whose, flag)).unzip();
    let (noun, pronoun) = if whose.len() == 1 {
        ("image is", "it")
    } else {
        ("images are", "them")
    };
    Failure::new(
        format!("{} {noun} missing, and {why}", whose.join(" and ")),
        format!("pass {pronoun} with {}", flags.join(" and ")),
    )
}

/// Whether the allow-lists permit this configuration. A configuration of an older release may contain any value, and
/// the policy would then reject new syncers.
fn allows(allowed: &Allowed, config: &GlobalPullSecretSpec) -> Result<()> {
    for (field, value, values, flag) in [
        (
            "unit",
            &config.kubelet.unit,
            allowed.units(),
            "--allow-unit",
        ),
        (
            "configFile",
            &config.kubelet.config_file,
            allowed.config_files(),
            "--allow-config-file",
        ),
    ] {
        if !values.contains(value) {
            return Err(Failure::new(
                format!("`spec.kubelet.{field}` is `{value}`, which is not allowed"),
                format!("if this is intended, install with `{flag} {value}`"),
            ));
        }
    }
    match &config.kubelet.credential_provider {
        Some(paths) if !allowed.providers().contains(paths) => {
            let paths = format!("{}:{}", paths.config_path, paths.bin_dir);
            Err(Failure::new(
                format!("`spec.kubelet.credentialProvider` is `{paths}`, which is not allowed"),
                format!("if this is intended, install with `--allow-provider {paths}`"),
            ))
        }
        _ => Ok(()),
    }
}

/// A source for every pod.
fn named(name: &str) -> SourceRef {
    SourceRef {
        name: name.to_owned(),
        scope: None,
    }
}

/// Adds the fields of the installed configuration, because server-side apply removes fields that an earlier apply set
/// and this one omits.
fn extend(manifests: &mut Manifests, spec: GlobalPullSecretSpec) {
    let asked = std::mem::take(&mut manifests.sources);
    // Known sources come first, because they may have a scope.
    for source in spec.sources.into_iter().chain(asked) {
        if !manifests.sources.iter().any(|s| s.name == source.name) {
            manifests.sources.push(source);
        }
    }
    let known = Some(spec.kubelet.delivery).filter(|known| *known != DeliveryType::default());
    manifests.delivery = manifests.delivery.or(known);
    match (&mut manifests.original, spec.original.secret_ref) {
        (None, known) if manifests.hosted_control_plane.is_none() => {
            manifests.original = known;
            manifests.hosted_control_plane = spec.original.hosted_control_plane;
        }
        // No flag sets the key, so the installed one stays.
        (Some(asked), Some(known)) if is_same(asked, &known) => *asked = known,
        _ => {}
    }
}

fn is_same(one: &SecretRef, other: &SecretRef) -> bool {
    (&one.namespace, &one.name) == (&other.namespace, &other.name)
}

/// The images of the controller and of the syncer that it deploys.
fn images(deployment: &Deployment) -> Option<(String, String)> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let container = pod.containers.first()?;
    let mut args = container.args.iter().flatten();
    let syncer = args.find_map(|arg| arg.strip_prefix("--syncer-image="))?;
    Some((container.image.clone()?, syncer.to_owned()))
}

fn images_pull_secret(deployment: &Deployment) -> Option<String> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let reference = pod.image_pull_secrets.iter().flatten().next()?;
    Some(reference.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_values_stay_without_flags() {
        let mut manifests = Manifests {
            controller_image: "registry/c:1".to_owned(),
            syncer_image: "registry/s:1".to_owned(),
            namespace: "kube-system".to_owned(),
            original: None,
            sources: vec![named("b"), named("c")],
            delivery: None,
            image_pull_secrets: None,
            operators: None,
            hosted_control_plane: None,
            images_pull_secret: None,
            syncer_images_pull_secret: None,
            allowed: Allowed::default(),
            is_openshift: false,
        };
        let objects = manifests.objects();
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
        let deployment = deployment.cloned().map(serde_json::from_value);
        let deployment: Deployment = deployment.expect("one").expect("a Deployment");
        let expected = ("registry/c:1".to_owned(), "registry/s:1".to_owned());
        assert_eq!(images(&deployment), Some(expected));
        let spec = serde_json::json!({
            "sources": [{"name": "a"}, {"name": "b", "scope": {"namespaces": ["n"]}}],
            "kubelet": {"delivery": "CredentialProvider"},
            "original": {"secretRef": {"namespace": "n", "name": "o"}},
        });
        extend(
            &mut manifests,
            serde_json::from_value(spec).expect("a spec"),
        );
        let names: Vec<&str> = manifests.sources.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(manifests.sources[1].scope.is_some(), "a scope is kept");
        assert_eq!(manifests.delivery, Some(DeliveryType::CredentialProvider));
        assert_eq!(
            manifests.original.map(|original| original.name),
            Some("o".to_owned())
        );
    }

    #[test]
    fn what_is_configured_must_be_allowed() {
        let mut config = GlobalPullSecretSpec::default();
        assert!(allows(&Allowed::default(), &config).is_ok());
        "own.service".clone_into(&mut config.kubelet.unit);
        let refused = allows(&Allowed::default(), &config).expect_err("not allowed");
        assert!(
            format!("{refused:?}").contains("--allow-unit own.service"),
            "{refused:?}"
        );
        let with = Allowed::with(&["own.service".to_owned()], &[], &[]);
        assert!(allows(&with, &config).is_ok());
        "/own/config.json".clone_into(&mut config.kubelet.config_file);
        assert!(allows(&with, &config).is_err());
    }
}
