//! Pushes images: the blobs, then the manifests that reference them.

use globalps_dockerconfig::Credential;
use hyper::body::Bytes;
use hyper::header::{HeaderValue, LOCATION};
use hyper::{Method, StatusCode};

use crate::check::{Checker, accepted, challenge, unexpected};
use crate::endpoint::{Endpoint, Scheme, endpoint};
use crate::error::RegistryError;
use crate::http::{Answer, RequestBody};
use crate::url::resolved;

/// Media type of a blob's content.
const OCTETS: &str = "application/octet-stream";

/// One repository of a registry, with a login for pushing.
pub struct Repository<'a> {
    checker: &'a Checker,
    endpoint: Endpoint,
    scheme: Scheme,
    name: String,
    credential: Option<&'a Credential>,
    authorization: Option<HeaderValue>,
}

/// The result of pushing a blob or a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The registry did not have it before.
    Sent,
    /// The registry has it already.
    Known,
}

impl Checker {
    /// `repository`: including the registry, such as `quay.io/org/app`. `credential`: `None` pushes anonymously.
    pub async fn repository<'a>(
        &'a self,
        repository: &str,
        credential: Option<&'a Credential>,
    ) -> Result<Repository<'a>, RegistryError> {
        let not_a_name = || RegistryError::BadUrl {
            url: format!("https://{repository}"),
        };
        let (host, name) = repository.split_once('/').ok_or_else(not_a_name)?;
        let endpoint = endpoint(host).ok_or_else(not_a_name)?;
        let (scheme, door) = self.ping(&endpoint).await?;
        let mut repository = Repository {
            checker: self,
            endpoint,
            scheme,
            name: name.to_owned(),
            credential,
            authorization: None,
        };
        match door.status {
            StatusCode::UNAUTHORIZED => repository.log_in(&door).await?,
            status if status.is_success() => {}
            _ => return Err(unexpected(&door)),
        }
        Ok(repository)
    }
}

impl Repository<'_> {
    async fn log_in(&mut self, door: &Answer) -> Result<(), RegistryError> {
        let scope = format!("repository:{}:pull,push", self.name);
        let login = self.checker.log_in(door, Some(&scope), self.credential);
        self.authorization = Some(login.await?);
        Ok(())
    }

    /// Pushes a blob. The registry verifies that the content matches the digest.
    pub async fn push_blob(
        &mut self,
        digest: &str,
        content: &Bytes,
    ) -> Result<Pushed, RegistryError> {
        let url = self.endpoint.blob(self.scheme, &self.name, digest);
        let known = self.ask(Method::HEAD, &url, None).await?.status;
        // Some registries redirect to their storage.
        if known.is_success() || known.is_redirection() {
            return Ok(Pushed::Known);
        }
        let uploads = self.endpoint.uploads(self.scheme, &self.name);
        let begun = self
            .ask(Method::POST, &uploads, Some((OCTETS, Bytes::new())))
            .await?;
        accepted(&begun)?;
        let location = begun.headers.get(LOCATION).and_then(|it| it.to_str().ok());
        let location = location.ok_or_else(|| unexpected(&begun))?;
        let upload = resolved(&begun.url, location)?;
        let separator = if upload.contains('?') { '&' } else { '?' };
        let upload = format!("{upload}{separator}digest={digest}");
        let sent = self
            .ask(Method::PUT, &upload, Some((OCTETS, content.clone())))
            .await?;
        accepted(&sent)?;
        Ok(Pushed::Sent)
    }

    /// Pushes a manifest. `reference`: a tag, or the manifest's digest.
    pub async fn push_manifest(
        &mut self,
        reference: &str,
        media_type: &str,
        content: &Bytes,
    ) -> Result<(), RegistryError> {
        let url = self.endpoint.manifest(self.scheme, &self.name, reference);
        let content = Some((media_type, content.clone()));
        accepted(&self.ask(Method::PUT, &url, content).await?)
    }

    /// Sends the request; if the token has expired since the last request, repeats it once with a new token.
    async fn ask(
        &mut self,
        method: Method,
        url: &str,
        content: Option<RequestBody<'_>>,
    ) -> Result<Answer, RegistryError> {
        let http = &self.checker.http;
        // The upload URL may be on another server, which gets no password.
        let is_here = url.starts_with(&self.endpoint.ping(self.scheme));
        let authorization = self.authorization.clone().filter(|_| is_here);
        let request = http.send(method.clone(), url, authorization.as_ref(), content.clone());
        let answer = request.await?;
        if answer.status != StatusCode::UNAUTHORIZED || !is_here || challenge(&answer).is_none() {
            return Ok(answer);
        }
        self.log_in(&answer).await?;
        let authorization = self.authorization.as_ref();
        http.send(method, url, authorization, content).await
    }
}
