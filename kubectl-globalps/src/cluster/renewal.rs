//! A client that logs in again if the API server rejects a login that was valid before. kube renews a token only if its
//! program reports an expiry, and a token file only once a minute.

use std::sync::Arc;

use hyper::{Request, StatusCode};
use kube::client::Body;
use kube::{Client, Config};
use tokio::sync::Mutex;
use tower::{BoxError, service_fn};

/// The client of a login, and the login's number.
struct LoginClient {
    client: Client,
    number: u64,
}

pub(super) fn client(config: Config) -> kube::Result<Client> {
    let client = Client::try_from(config.clone())?;
    let auth = &config.auth_info;
    if auth.exec.is_none() && auth.token_file.is_none() {
        return Ok(client);
    }
    let namespace = config.default_namespace.clone();
    let login = Arc::new(Mutex::new(LoginClient { client, number: 0 }));
    let service = service_fn(move |request: Request<Body>| {
        let (login, config) = (Arc::clone(&login), config.clone());
        async move { send(&login, config, request).await }
    });
    Ok(Client::new(service, namespace))
}

/// Repeats the request once with a new login if the API server rejects the current one.
async fn send(
    login: &Mutex<LoginClient>,
    config: Config,
    request: Request<Body>,
) -> Result<hyper::Response<Body>, BoxError> {
    let again = copy(&request);
    let (client, number) = {
        let login = login.lock().await;
        (login.client.clone(), login.number)
    };
    let response = client.send(request).await?;
    let Some(again) = again.filter(|_| response.status() == StatusCode::UNAUTHORIZED) else {
        return Ok(response);
    };
    let client = {
        let mut login = login.lock().await;
        // Requests that are rejected concurrently share the new login.
        if login.number == number {
            // A login program blocks, and may prompt the user.
            let new = tokio::task::spawn_blocking(move || Client::try_from(config));
            login.client = new.await??;
            login.number += 1;
        }
        login.client.clone()
    };
    Ok(client.send(again).await?)
}

/// `None` if the body is a stream, which can be sent only once.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    Some(copy)
}
