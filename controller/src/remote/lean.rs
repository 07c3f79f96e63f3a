//! A client of a member cluster that needs little memory: the hub has one for each of a thousand clusters.

use std::time::Duration;

use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tokio_rustls::rustls::client::Resumption;
use tower::{Layer as _, ServiceBuilder};

use super::bounds::Bounds;
use super::kubeconfig::UNUSABLE;
use crate::leader::fencing::Fence;

/// Idle connections are closed after this time. The watch has a connection of its own.
const IDLE: Duration = Duration::from_secs(5);

/// Read buffer of a connection. A member's watch stays open and reads a few kilobytes at a time.
const READ_BUFFER: usize = 4096;

/// A client whose writes pass the fence. Unlike kube's default client, it has one request queue instead of two, and keeps no TLS
/// sessions and no idle connections. This saves 80 KB per cluster. `Err`: a predicate like [`UNUSABLE`].
pub(crate) fn lean_client(
    config: Config,
    fence: &Fence,
    bounds: &Bounds,
) -> Result<Client, String> {
    let unusable = |_| UNUSABLE.to_owned();
    if config.proxy_url.is_some() {
        let builder = ClientBuilder::try_from(config).map_err(unusable)?;
        return Ok(builder.with_layer(bounds).with_layer(fence).build());
    }
    let mut tls = config.rustls_client_config().map_err(unusable)?;
    tls.resumption = Resumption::disabled();
    let mut https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into();
        let name = name.map_err(|_| UNUSABLE.to_owned())?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let mut connector = TimeoutConnector::new(https.enable_http1().wrap_connector(tcp));
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    let http: Http<_, Body> = Http::builder(TokioExecutor::new())
        .http1_read_buf_exact_size(READ_BUFFER)
        .pool_idle_timeout(IDLE)
        .pool_timer(TokioTimer::new())
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(unusable)?)
        .layer(config.extra_headers_layer().map_err(unusable)?)
        .map_err(tower::BoxError::from)
        .service(http);
    let service = fence.layer(bounds.layer(service));
    Ok(Client::new(service, config.default_namespace))
}
