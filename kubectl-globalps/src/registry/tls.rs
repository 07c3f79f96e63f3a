//! Trusted certificates: those of the machine's trust store and of `--ca-file`; any with `--insecure`.

use std::sync::Arc;
use std::time::Duration;

use globalps_registry::{Checker, Connection};
use rustls_platform_verifier::Verifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// Which certificates are trusted.
#[derive(Clone, Debug)]
pub(crate) enum Trust {
    /// The machine's authorities and these.
    Authorities(Vec<CertificateDer<'static>>),
    Anybody,
}

/// A checker with this trust. `time`: timeout of each request.
pub(crate) fn checker(trust: Trust, time: Duration) -> Checker {
    Checker::new(Connection {
        insecure: matches!(trust, Trust::Anybody),
        tls: Box::new(move || config(&trust).map_err(|error| error.to_string())),
        time,
        user_agent: concat!("kubectl-globalps/", env!("CARGO_PKG_VERSION")),
        allows: |_| true,
    })
}

/// Reads the machine's trust store, which takes some milliseconds.
fn config(trust: &Trust) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::Authorities(extra) => Arc::new(Named {
            by_authority: Verifier::new_with_extra_roots(extra.iter().cloned(), provider.clone())?,
            webpki: by_named(extra, &provider),
            extra: extra.clone(),
        }),
        Trust::Anybody => Arc::new(Anybody(provider.clone())),
    };
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

/// `None` if none of these certificates can be an authority.
fn by_named(
    extra: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Option<Arc<WebPkiServerVerifier>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(extra.iter().cloned());
    WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone())
        .build()
        .ok()
}

/// Accepts a certificate of a trusted authority, or the server's own certificate if the user named exactly that one. Go
/// programs accept such a certificate even if it is marked as an authority's, as `openssl req -x509` marks it.
#[derive(Debug)]
struct Named {
    by_authority: Verifier,
    /// Verifies a server's own certificate in the same way on all platforms. The verifiers of macOS and Windows differ
    /// from each other here.
    webpki: Option<Arc<WebPkiServerVerifier>>,
    extra: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.by_authority.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        if verified.is_ok() || !self.extra.iter().any(|named| named == end_entity) {
            return verified;
        }
        let Some(webpki) = &self.webpki else {
            return verified;
        };
        match webpki.verify_server_cert(end_entity, &[], server_name, ocsp_response, now) {
            // The certificate is marked as an authority's. webpki has already checked its validity period.
            Err(Error::InvalidCertificate(CertificateError::Other(_))) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

/// Accepts every certificate and signature.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;

    /// Valid from 2020 to 2030.
    fn self_signed(is_authority: bool) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["r.example.com".to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2030, 1, 1);
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").into()
    }

    #[test]
    fn a_named_server_certificate_needs_no_platform_verifier() {
        let provider = Arc::new(ring::default_provider());
        for is_authority in [false, true] {
            let leaf = self_signed(is_authority);
            let other = self_signed(is_authority);
            // A platform verifier that trusts none of them, like those of macOS and Windows.
            let verifier = Named {
                by_authority: Verifier::new(provider.clone()).expect("a trust store"),
                webpki: by_named(std::slice::from_ref(&leaf), &provider),
                extra: vec![leaf.clone()],
            };
            for (certificate, host, year, expected) in [
                (&leaf, "r.example.com", 2026, true),
                (&leaf, "other.example.com", 2026, false),
                (&leaf, "r.example.com", 2031, false),
                (&leaf, "r.example.com", 2019, false),
                (&other, "r.example.com", 2026, false),
            ] {
                let seconds = (year - 1970) * 31_557_600 + 86_400;
                let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
                let name = ServerName::try_from(host).expect("a name");
                let found = verifier.verify_server_cert(certificate, &[], &name, &[], now);
                assert_eq!(
                    found.is_ok(),
                    expected,
                    "{is_authority} {host} {year}: {found:?}"
                );
            }
        }
    }
}
