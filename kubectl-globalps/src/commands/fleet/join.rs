//! `fleet join`: an identity for the hub in a member cluster, and its kubeconfig on the hub.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use globalps_core::names;
use globalps_manifests::{HUB_TOKEN_SECRET, hub_member, hub_registration};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::config::{Cluster as Server, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::Value;
use tokio::time::Instant;

use crate::cli::{Connection, DryRun, FleetJoin};
use crate::cluster::client::Cluster;
use crate::cluster::member::{Access, is_loopback, kubeconfig, server_of};
use crate::error::{Exit, Failure, Result, without_user};
use crate::install::objects::{Object, apply};
use crate::secret::additional::data_of;
use crate::terminal::printer::Printer;

/// How long the member may take to issue the token, and to let it in.
const ISSUE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

pub(super) async fn run(args: &FleetJoin, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let read = Kubeconfig::read_from(&args.member_kubeconfig);
    let read = read.map_err(|error| Failure::from_kubeconfig(&error))?;
    let server = server_of(&read, args.member_context.as_deref())?;
    let access = access(&server, args)?;
    if is_loopback(&access.server) {
        printer.warning(format_args!(
            "`{}` is an address of this machine, at which the hub reaches itself: `--server-for-hub` names another one",
            without_user(&access.server)
        ));
    }
    if server.proxy_url.is_some() {
        printer.warning("the kubeconfig of the hub has no `proxy-url`: the hub connects to the member without a proxy");
    }
    let hub = Cluster::connect(flags, printer)?;
    let member = Cluster::connect(
        &flags.of_member(&args.member_kubeconfig, args.member_context.as_ref()),
        printer,
    )?;
    if args.dry_run != DryRun::Client {
        refuse_hub(&hub, &member).await?;
    }
    may_register(&hub, &args.member, args.dry_run).await?;
    let how = args.dry_run.suffix();
    for object in hub_member().into_iter().map(Object::of) {
        if args.dry_run != DryRun::Client && !put(&member, &object, args.dry_run).await? {
            continue;
        }
        printer.data(&format!(
            "member: {} serverside-applied{how}",
            object.title()
        ));
    }
    let config = match args.dry_run {
        DryRun::None => {
            let (token, authority) = token(&member).await?;
            let access = with_authority(access, &server, &authority);
            let config = kubeconfig(&args.member, &access, &token);
            if args.server_for_hub.is_none() {
                try_out(&member, &config).await?;
            }
            config
        }
        _ => Value::Null,
    };
    let secret = hub_registration(&hub.namespace, &args.member, &args.labels, &config);
    let secret = Object::of(secret);
    if args.dry_run != DryRun::Client {
        apply(&hub, &secret, args.dry_run == DryRun::Server).await?;
    }
    printer.data(&format!("{} serverside-applied{how}", secret.title()));
    if args.dry_run == DryRun::None {
        printer.note(format_args!(
            "cluster `{}/{}` is registered; a FleetPullSecret selects it by the labels of this Secret in `spec.registered.selector`",
            hub.namespace, args.member
        ));
    }
    Ok(Exit::Done)
}

/// How the hub reaches the member: as this kubeconfig does, or at the address that was given.
fn access(server: &Server, args: &FleetJoin) -> Result<Access> {
    let file = server.certificate_authority.as_ref();
    let authority = match (&server.certificate_authority_data, file) {
        (Some(data), _) => Some(data.clone()),
        (None, Some(file)) => {
            let directory = args.member_kubeconfig.parent();
            let path = directory.map_or_else(|| file.into(), |it| it.join(file));
            let pem = std::fs::read(&path).map_err(|error| {
                Failure::new(
                    format!("`{}` could not be read: {error}", path.display()),
                    "the member's kubeconfig names it as `certificate-authority`",
                )
            })?;
            Some(STANDARD.encode(pem))
        }
        (None, None) => None,
    };
    let own = server.server.clone().unwrap_or_default();
    Ok(Access {
        server: args.server_for_hub.clone().unwrap_or(own),
        authority,
        tls_server_name: server.tls_server_name.clone(),
    })
}

/// Where the certificate is not checked here, the hub checks it against the cluster's own authority.
fn with_authority(access: Access, server: &Server, authority: &[u8]) -> Access {
    let is_unchecked = server.insecure_skip_tls_verify == Some(true);
    if !is_unchecked || authority.is_empty() {
        return access;
    }
    Access {
        authority: Some(STANDARD.encode(authority)),
        ..access
    }
}

/// A hub that rolled out to itself would fight with what is in force there.
async fn refuse_hub(hub: &Cluster<'_>, member: &Cluster<'_>) -> Result<()> {
    let (one, other) = tokio::join!(identity(hub), identity(member));
    // Continues without permission to read them: the hub compares them too.
    match (one.ok(), other?) {
        (Some(hub), member) if hub == member && hub.is_some() => Err(Failure::new(
            "the member's kubeconfig is of the management cluster itself",
            "name the kubeconfig of the member with `--member-kubeconfig`, and the hub with `--kubeconfig` or `--context`",
        )),
        _ => Ok(()),
    }
}

/// uid of the namespace `kube-system`.
async fn identity(cluster: &Cluster<'_>) -> Result<Option<String>> {
    let api: Api<Namespace> = Api::all(cluster.client.clone());
    let call = api.get_metadata(names::NAMESPACE);
    let doing = format!("get namespace `{}`", names::NAMESPACE);
    Ok(cluster.call(&doing, call).await?.uid())
}

/// Refuses to overwrite a Secret that registers no cluster.
async fn may_register(hub: &Cluster<'_>, name: &str, dry_run: DryRun) -> Result<()> {
    if dry_run == DryRun::Client {
        return Ok(());
    }
    let api = hub.api::<Secret>();
    let doing = format!("get Secret `{}/{name}`", hub.namespace);
    let existing = hub.call(&doing, api.get_metadata_opt(name)).await?;
    let registers =
        |secret: &_| kube::ResourceExt::labels(secret).contains_key(names::CLUSTER_LABEL);
    match existing {
        Some(secret) if !registers(&secret) => Err(Failure::new(
            format!(
                "the hub has a Secret `{}/{name}` that registers no cluster",
                hub.namespace
            ),
            format!(
                "choose another name or namespace, or label it `{}=true` if it may be overwritten",
                names::CLUSTER_LABEL
            ),
        )),
        _ => Ok(()),
    }
}

/// `false` if the member does not serve this kind; prints a message.
async fn put(member: &Cluster<'_>, object: &Object, dry_run: DryRun) -> Result<bool> {
    match apply(member, object, dry_run == DryRun::Server).await {
        Ok(()) => Ok(true),
        Err(failure) if failure.is(404) && object.resource.kind.starts_with("ValidatingAdm") => {
            if !object.resource.kind.ends_with("Binding") {
                member.printer().warning(
                    "the member has no ValidatingAdmissionPolicy, which Kubernetes serves from 1.30: with the hub's token, a ServiceAccount token of namespace `kube-system` can be created in place of the pull secret",
                );
            }
            Ok(false)
        }
        Err(failure) => Err(failure),
    }
}

/// The token, once the member's controller manager has issued it, and the cluster's certificate authority.
async fn token(member: &Cluster<'_>) -> Result<(String, Vec<u8>)> {
    let api = member.api::<Secret>();
    let doing = format!("get Secret `{}/{HUB_TOKEN_SECRET}`", member.namespace);
    let deadline = Instant::now() + ISSUE;
    loop {
        let secret = member.call(&doing, api.get(HUB_TOKEN_SECRET)).await?;
        let token = data_of(&secret, "token").and_then(|it| std::str::from_utf8(it).ok());
        if let Some(token) = token.filter(|token| !token.is_empty()) {
            let authority = data_of(&secret, "ca.crt").unwrap_or_default();
            return Ok((token.to_owned(), authority.to_vec()));
        }
        if Instant::now() >= deadline {
            return Err(Failure::new(
                format!(
                    "the member issued no token for Secret `{}/{HUB_TOKEN_SECRET}` within {} s",
                    member.namespace,
                    ISSUE.as_secs()
                ),
                "does its kube-controller-manager run? Then run the command again",
            ));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Reads the pull secret as the hub will. New permissions take effect within moments.
async fn try_out(member: &Cluster<'_>, config: &Value) -> Result<()> {
    let doing = format!(
        "get Secret `{}/{}` with the hub's token",
        names::NAMESPACE,
        names::ADDITIONAL_SECRET
    );
    let unusable = || {
        Failure::new(
            "the member's server address or certificate can't be used in a kubeconfig",
            "name the address with `--server-for-hub`",
        )
    };
    // Errors are dropped: they may quote the kubeconfig.
    let read: Kubeconfig = serde_json::from_value(config.clone()).map_err(|_| unusable())?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(read, &options).await;
    let client = config.ok().and_then(|it| Client::try_from(it).ok());
    let client = client.ok_or_else(unusable)?;
    let api: Api<Secret> = Api::namespaced(client, names::NAMESPACE);
    let deadline = Instant::now() + ISSUE;
    loop {
        let call = api.get_metadata_opt(names::ADDITIONAL_SECRET);
        match member.call(&doing, call).await {
            Err(failure) if (failure.is(401) || failure.is(403)) && Instant::now() < deadline => {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            done => return done.map(drop),
        }
    }
}
