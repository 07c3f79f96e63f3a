//! The questions to a registry, one after the other: is it there, how does it want to be asked, does it take the
//! credentials, may they pull.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use globalps_core::dockerconfig::Credential;
use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde::Deserialize;

use crate::challenge::{Challenge, choose};
use crate::endpoint::{Endpoint, Scheme, endpoint, token_url};
use crate::error::{Peer, RegistryError, Why};
use crate::http::{Answer, Connection, Http};

/// What became of a check that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    /// It lets anybody in, so nothing is known of the credentials.
    Open,
    /// The key names many registries.
    Pattern,
    /// The credentials are good, but may not pull from this repository. The key may be the beginning of others' names.
    MayNotPull(String),
}

impl Verdict {
    /// What was found out about `registry`.
    pub fn sentence(&self, registry: &str) -> String {
        match self {
            Self::Accepted => format!("`{registry}` accepts the credentials"),
            Self::Open => {
                format!("`{registry}` needs no login, so the credentials could not be checked")
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

pub struct Checker {
    pub(crate) http: Http,
    insecure: bool,
}

/// What a token server answers. Old ones say `token`, others `access_token`, many both.
#[derive(Deserialize)]
struct Tokens {
    token: Option<String>,
    access_token: Option<String>,
}

impl Checker {
    pub fn new(connection: Connection) -> Self {
        Self {
            insecure: connection.insecure,
            http: Http::new(connection),
        }
    }

    /// Whether the registry of `key` takes the credentials.
    pub async fn check(
        &self,
        key: &str,
        credential: &Credential,
    ) -> Result<Verdict, RegistryError> {
        match endpoint(key) {
            Some(endpoint) => self.ask(&endpoint, credential).await,
            None => Ok(Verdict::Pattern),
        }
    }

    async fn ask(
        &self,
        endpoint: &Endpoint,
        credential: &Credential,
    ) -> Result<Verdict, RegistryError> {
        let (scheme, door) = self.ping(endpoint).await?;
        match door.status {
            StatusCode::UNAUTHORIZED => {}
            status if status.is_success() => return Ok(Verdict::Open),
            _ => return Err(unexpected(&door)),
        }
        let authorization = self.log_in(&door, None, Some(credential)).await?;
        // Starts again at the first URL, so that no redirect sends a password to another server.
        let inside = self
            .http
            .get(&endpoint.ping(scheme), Some(&authorization))
            .await?;
        accepted(&inside)?;
        let Some(repository) = &endpoint.repository else {
            return Ok(Verdict::Accepted);
        };
        let url = endpoint.tags(scheme, repository);
        Ok(
            if self.may_pull(&url, repository, &door, credential).await? {
                Verdict::Accepted
            } else {
                Verdict::MayNotPull(repository.clone())
            },
        )
    }

    /// TLS first; where anything is allowed and nothing speaks TLS there, plain HTTP.
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

    /// What to send so that the registry lets one in, by what it said at the `door`.
    /// Without a credential only an anonymous token is possible.
    pub(crate) async fn log_in(
        &self,
        door: &Answer,
        scope: Option<&str>,
        credential: Option<&Credential>,
    ) -> Result<HeaderValue, RegistryError> {
        let headers = door.headers.get_all(WWW_AUTHENTICATE).into_iter();
        match choose(headers.filter_map(|header| header.to_str().ok())) {
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

    /// `false`: the registry forbids it. Where it does not know the repository, or has something else to say, there is
    /// nothing against the credentials: the key may stand for all that begins with it.
    async fn may_pull(
        &self,
        url: &str,
        repository: &str,
        door: &Answer,
        credential: &Credential,
    ) -> Result<bool, RegistryError> {
        let scope = format!("repository:{repository}:pull");
        let authorization = match self.log_in(door, Some(&scope), Some(credential)).await {
            Err(RegistryError::Refused { .. }) => return Ok(false),
            Err(RegistryError::Answer { .. }) => return Ok(true),
            other => other?,
        };
        let status = self.http.get(url, Some(&authorization)).await?.status;
        Ok(![StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status))
    }
}

/// Whether the answer lets the credentials in.
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

/// Whether a server may be there that speaks no TLS.
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
        // The two have different ports then.
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

/// `None`: what can't be sent in a header.
fn sensitive(text: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
