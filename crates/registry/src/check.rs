//! The steps of a check: whether the registry responds, which login it requires, whether it accepts the credentials,
//! and whether they may pull.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use globalps_dockerconfig::Credential;
use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde::Deserialize;

use crate::challenge::{Challenge, choose};
use crate::endpoint::{Endpoint, Scheme, endpoint, token_url};
use crate::error::{Peer, RegistryError, Why};
use crate::http::{Answer, Connection, Http};

/// The result of a check that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// The registry authenticated the request with them.
    Accepted,
    /// The registry requires a login, but not at `/v2/`, where containers/image expects it.
    AcceptedInside,
    /// The registry allows anonymous access, so nothing is known about the credentials.
    Open,
    /// The key is a pattern that matches many registries.
    Pattern,
    /// The credentials are valid, but may not pull from this repository. The key may be a prefix of repositories that
    /// they may pull from.
    MayNotPull(String),
}

impl CheckOutcome {
    /// A sentence about this result for `registry`.
    pub fn sentence(&self, registry: &str) -> String {
        match self {
            Self::Accepted => format!("`{registry}` accepts the credentials"),
            Self::AcceptedInside => format!(
                "`{registry}` accepts the credentials, but asks for no login at `/v2/`, so nodes with CRI-O don't send them"
            ),
            Self::Open => {
                format!(
                    "`{registry}` asks for no login at `/v2/`, so the credentials could not be checked"
                )
            }
            Self::Pattern => format!(
                "`{registry}` stands for many registries, so its credentials could not be checked"
            ),
            Self::MayNotPull(repository) => format!(
                "`{registry}` accepts the credentials, but they may not pull `{repository}`, if that is a repository"
            ),
        }
    }
}

/// Sends requests to registries, with one TLS configuration and one timeout for all of them.
pub struct Checker {
    pub(crate) http: Http,
    insecure: bool,
}

/// The token server's response. Old servers set `token`, others `access_token`, many both.
#[derive(Deserialize)]
struct Tokens {
    token: Option<String>,
    access_token: Option<String>,
}

impl Checker {
    /// Sends no request before the first check.
    pub fn new(connection: Connection) -> Self {
        Self {
            insecure: connection.insecure,
            http: Http::new(connection),
        }
    }

    /// Checks whether the registry of `key` accepts the credentials.
    pub async fn check(
        &self,
        key: &str,
        credential: &Credential,
    ) -> Result<CheckOutcome, RegistryError> {
        match endpoint(key) {
            Some(endpoint) => self.ask(&endpoint, credential).await,
            None => Ok(CheckOutcome::Pattern),
        }
    }

    async fn ask(
        &self,
        endpoint: &Endpoint,
        credential: &Credential,
    ) -> Result<CheckOutcome, RegistryError> {
        let (scheme, mut door) = self.ping(endpoint).await?;
        let is_open = door.status.is_success();
        let good = match challenge(&door) {
            None => CheckOutcome::AcceptedInside,
            Some(_) => CheckOutcome::Accepted,
        };
        if is_open {
            match self.inner_door(scheme, endpoint, credential).await? {
                Some(inner) => door = inner,
                None => return Ok(CheckOutcome::Open),
            }
        } else if door.status != StatusCode::UNAUTHORIZED {
            return Err(unexpected(&door));
        }
        let authorization = self.log_in(&door, None, Some(credential)).await?;
        // Starts again at the first URL, so that a redirect never sends a password to another server.
        let inside = self
            .http
            .get(&endpoint.ping(scheme), Some(&authorization))
            .await?;
        accepted(&inside)?;
        let Some(repository) = &endpoint.repository else {
            return Ok(good);
        };
        let url = endpoint.tags(scheme, repository);
        match self.denial(&url, repository, &door, credential).await? {
            None => Ok(good),
            // No other request has checked the password.
            Some(status @ 401) if is_open && challenge(&door) == Some(Challenge::Basic) => {
                let url = without_query(&url);
                Err(RegistryError::Refused { url, status })
            }
            Some(_) => Ok(CheckOutcome::MayNotPull(repository.clone())),
        }
    }

    /// The response of a registry that allows anonymous access at `/v2/` but requires a login elsewhere: at the
    /// repository, or at `/v2/` if the request has a password. `None` if it requires none.
    async fn inner_door(
        &self,
        scheme: Scheme,
        endpoint: &Endpoint,
        credential: &Credential,
    ) -> Result<Option<Answer>, RegistryError> {
        if let Some(repository) = &endpoint.repository {
            let answer = self
                .http
                .get(&endpoint.tags(scheme, repository), None)
                .await?;
            if answer.status == StatusCode::UNAUTHORIZED {
                return Ok(Some(answer));
            }
        }
        let password = basic(credential);
        let answer = self
            .http
            .get(&endpoint.ping(scheme), Some(&password))
            .await?;
        match answer.status {
            StatusCode::UNAUTHORIZED if challenge(&answer).is_some() => Ok(Some(answer)),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => accepted(&answer).map(|()| None),
            _ => Ok(None),
        }
    }

    /// Tries TLS first; plain HTTP only if `insecure` is set and the server doesn't speak TLS.
    pub(crate) async fn ping(
        &self,
        endpoint: &Endpoint,
    ) -> Result<(Scheme, Answer), RegistryError> {
        match self.http.get(&endpoint.ping(Scheme::Https), None).await {
            Err(error) if self.insecure && may_be_plain(&error, endpoint.has_port()) => {
                let answer = self.http.get(&endpoint.ping(Scheme::Http), None).await?;
                Ok((Scheme::Http, answer))
            }
            answer => Ok((Scheme::Https, answer?)),
        }
    }

    /// The `Authorization` header for the challenge in the response `door`. Without a credential, only an anonymous
    /// token is possible.
    pub(crate) async fn log_in(
        &self,
        door: &Answer,
        scope: Option<&str>,
        credential: Option<&Credential>,
    ) -> Result<HeaderValue, RegistryError> {
        match challenge(door) {
            Some(Challenge::Basic) => {
                let refused = || RegistryError::Refused {
                    url: without_query(&door.url),
                    status: door.status.as_u16(),
                };
                credential.map(basic).ok_or_else(refused)
            }
            Some(Challenge::Bearer { realm, service }) => {
                let url = token_url(&realm, service.as_deref(), scope);
                self.token(&url, &realm, credential).await
            }
            Some(Challenge::Other(way)) => Err(RegistryError::Login {
                url: door.url.clone(),
                way: Some(way),
            }),
            None => Err(RegistryError::Login {
                url: door.url.clone(),
                way: None,
            }),
        }
    }

    async fn token(
        &self,
        url: &str,
        realm: &str,
        credential: Option<&Credential>,
    ) -> Result<HeaderValue, RegistryError> {
        let encrypted = realm
            .get(..8)
            .is_some_and(|start| start.eq_ignore_ascii_case("https://"));
        if !encrypted && !self.insecure && credential.is_some() {
            return Err(RegistryError::Unencrypted {
                url: realm.to_owned(),
            });
        }
        let answer = self.http.get(url, credential.map(basic).as_ref()).await?;
        let no_token = || RegistryError::NoToken {
            url: realm.to_owned(),
        };
        accepted(&answer)?;
        let tokens: Tokens = serde_json::from_slice(&answer.body).map_err(|_| no_token())?;
        let token = tokens.token.or(tokens.access_token).unwrap_or_default();
        if token.is_empty() {
            return Err(no_token());
        }
        sensitive(format!("Bearer {token}")).ok_or_else(no_token)
    }

    /// The status with which the registry denies a pull. If the registry doesn't know the repository, or returns
    /// another error, nothing speaks against the credentials: the key may be a prefix of repositories.
    async fn denial(
        &self,
        url: &str,
        repository: &str,
        door: &Answer,
        credential: &Credential,
    ) -> Result<Option<u16>, RegistryError> {
        let scope = format!("repository:{repository}:pull");
        let authorization = match self.log_in(door, Some(&scope), Some(credential)).await {
            Err(RegistryError::Refused { status, .. }) => return Ok(Some(status)),
            Err(RegistryError::Answer { .. }) => return Ok(None),
            other => other?,
        };
        let status = self
            .http
            .get(url, Some(&authorization))
            .await?
            .status
            .as_u16();
        Ok([401, 403].contains(&status).then_some(status))
    }
}

/// The login that the response requires.
pub(crate) fn challenge(answer: &Answer) -> Option<Challenge> {
    let headers = answer.headers.get_all(WWW_AUTHENTICATE).into_iter();
    choose(headers.filter_map(|header| header.to_str().ok()))
}

/// Whether the response accepts the credentials.
pub(crate) fn accepted(answer: &Answer) -> Result<(), RegistryError> {
    match answer.status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(RegistryError::Refused {
            url: without_query(&answer.url),
            status: answer.status.as_u16(),
        }),
        status if status.is_success() => Ok(()),
        _ => Err(unexpected(answer)),
    }
}

pub(crate) fn unexpected(answer: &Answer) -> RegistryError {
    let retry_after = answer.headers.get(RETRY_AFTER);
    RegistryError::Answer {
        url: without_query(&answer.url),
        status: answer.status.as_u16(),
        retry_after: retry_after
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned),
    }
}

fn without_query(url: &str) -> String {
    url.split('?').next().unwrap_or_default().to_owned()
}

/// Whether the server may speak only plain HTTP.
fn may_be_plain(error: &RegistryError, has_port: bool) -> bool {
    let RegistryError::Way {
        to: Peer::Host { .. },
        why,
    } = error
    else {
        return false;
    };
    match why {
        Why::NotTls => true,
        // HTTP and HTTPS then have different ports.
        Why::Refuses | Why::NoConnection(_) => !has_port,
        _ => false,
    }
}

fn basic(credential: &Credential) -> HeaderValue {
    let pair = [
        credential.username.expose(),
        b":",
        credential.password.expose(),
    ]
    .concat();
    let text = format!("Basic {}", BASE64_STANDARD.encode(pair));
    sensitive(text).unwrap_or(HeaderValue::from_static(""))
}

/// `None` if the text can't be sent in a header.
fn sensitive(text: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
