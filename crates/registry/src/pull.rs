//! Requests an image's manifest from a registry, like a container runtime that starts a pull.

use globalps_dockerconfig::Credential;
use hyper::StatusCode;

use crate::check::{Checker, accepted, challenge, unexpected};
use crate::endpoint::endpoint;
use crate::error::RegistryError;

/// The parts of an image name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageName {
    /// In the kubelet's form: `docker.io/library/nginx`.
    pub repository: String,
    /// Tag or digest.
    pub reference: String,
}

impl ImageName {
    /// Splits the name `text`, whose repository is `repository`.
    pub fn of(text: &str, repository: &str) -> Self {
        let name = text.rsplit('/').next().unwrap_or(text);
        let reference = match (name.split_once('@'), name.split_once(':')) {
            (Some((_, digest)), _) => digest,
            (None, Some((_, tag))) => tag,
            (None, None) => "latest",
        };
        Self {
            repository: repository.to_owned(),
            reference: reference.to_owned(),
        }
    }

    /// The part before the first slash, including the port: `docker.io`.
    pub fn registry(&self) -> &str {
        self.repository
            .split_once('/')
            .map_or(&*self.repository, |(host, _)| host)
    }
}

/// The registry's answer about an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// A pull with these credentials would get the manifest.
    Available,
    /// 404 for the repository or the tag.
    Missing,
}

impl Checker {
    /// `credential`: `None` sends an anonymous request. Rejected credentials are an error for which
    /// [`RegistryError::is_refusal`] is true.
    pub async fn pull(
        &self,
        image: &ImageName,
        credential: Option<&Credential>,
    ) -> Result<Pull, RegistryError> {
        let not_a_name = || RegistryError::BadUrl {
            url: format!("https://{}", image.repository),
        };
        let (host, repository) = image.repository.split_once('/').ok_or_else(not_a_name)?;
        let endpoint = endpoint(host).ok_or_else(not_a_name)?;
        let (scheme, door) = self.ping(&endpoint).await?;
        let scope = format!("repository:{repository}:pull");
        let authorization = match door.status {
            StatusCode::UNAUTHORIZED if challenge(&door).is_some() => {
                Some(self.log_in(&door, Some(&scope), credential).await?)
            }
            StatusCode::UNAUTHORIZED => None,
            status if status.is_success() => None,
            _ => return Err(unexpected(&door)),
        };
        let url = endpoint.manifest(scheme, repository, &image.reference);
        let mut answer = self.http.head(&url, authorization.as_ref()).await?;
        if answer.status == StatusCode::UNAUTHORIZED && authorization.is_none() {
            // `/v2/` allows anonymous access, but the repository does not.
            let authorization = self.log_in(&answer, Some(&scope), credential).await?;
            answer = self.http.head(&url, Some(&authorization)).await?;
        }
        match answer.status {
            StatusCode::NOT_FOUND => Ok(Pull::Missing),
            _ => accepted(&answer).map(|()| Pull::Available),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_or_a_digest_names_the_manifest() {
        for (text, reference) in [
            ("nginx", "latest"),
            ("quay.io:5000/org/app", "latest"),
            ("quay.io:5000/org/app:1", "1"),
            ("quay.io/org/app:1@sha256:ab", "sha256:ab"),
            ("app@sha256:ab", "sha256:ab"),
        ] {
            let name = ImageName::of(text, "quay.io/org/app");
            assert_eq!(name.reference, reference, "{text}");
            assert_eq!(name.registry(), "quay.io");
        }
    }
}
