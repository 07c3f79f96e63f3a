//! Passwords that are valid for hours: External Secrets' generators renew them, with the manifests of
//! `docs/ecosystem.md`. moto and servers of this test simulate the clouds.

mod common;

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{base64, cluster};
use globalps_testkit::companions::external_secrets;
use globalps_testkit::printed::manifest;
use globalps_testkit::product::{CONFIG, DEADLINE, NAMESPACE, Product};
use globalps_testkit::web::{Authority, Server, Validity};
use globalps_testkit::{Access, Cluster, Node, config_file, secrecy, until, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(50);
const PAGE: &str = "ecosystem.md";
const ECR: &str = "123456789012.dkr.ecr.eu-central-1.amazonaws.com";
/// Half of the lifetime of a password in this test. Longer than the syncer's ten seconds between two restarts.
const REFRESH: Duration = Duration::from_secs(20);
/// Number of refreshes for each delivery.
const REFRESHES: usize = 4;
/// Loopback port of moto.
const MOTO: u16 = 5937;
const GOOGLE_TOKEN: &str = "ya29.of-a-test-of-google";
const AZURE_TOKEN: &str = "refresh-token-of-a-test-of-azure";
/// The user name in every token of Azure.
const AZURE_USER: &str = "00000000-0000-0000-0000-000000000000";

struct World<'a> {
    cluster: &'a Cluster,
    product: &'a Product<'a>,
    node: &'a Node,
}

/// A simulation of ECR's API.
struct Ecr {
    server: Server,
    /// The time at which it returned each password.
    answers: Arc<Mutex<Vec<Instant>>>,
}

/// The events of a period.
#[derive(Debug)]
struct Refreshed {
    /// How often the refresh interval had passed.
    refreshes: usize,
    /// More than `refreshes` if External Secrets requests two passwords for one refresh, as it sometimes does
    /// (external-secrets#2184).
    passwords: usize,
    kubelet_starts: usize,
}

#[test]
fn cloud_passwords_are_renewed_and_only_the_file_restarts() {
    let cluster = cluster("short-lived", 1);
    let product = Product::install(&cluster).unwrap();
    let world = World {
        cluster: &cluster,
        product: &product,
        node: &cluster.nodes().unwrap()[0],
    };
    world.secret(
        "aws",
        &json!({"access-key-id": "of-a-test", "secret-access-key": "of-a-test-too"}),
    );
    world.moto_gives_a_password_and_check_warns();
    world.each_refresh_restarts_the_kubelet_or_none_does();
    world.google_and_azure_give_passwords();
}

impl World<'_> {
    fn moto_gives_a_password_and_check_warns(&self) {
        let _moto = Moto::start();
        let endpoint = format!("http://127.0.0.1:{MOTO}");
        let _controller =
            external_secrets(self.cluster, &[("AWS_ECR_ENDPOINT", &endpoint)]).unwrap();
        self.apply(&manifest(PAGE, "ecr").unwrap());
        self.wait_auth(ECR, "AWS:123456789012-auth-token");
        self.product.wait_synced().unwrap();
        let warning = format!(
            "‼ the password for `{ECR}` lasts 12 hours, and each new one restarts every kubelet"
        );
        let check = self.check();
        assert!(check.contains(&warning), "{check}");
    }

    fn each_refresh_restarts_the_kubelet_or_none_does(&self) {
        self.images_of_ecr_are_those_of_the_private_registry();
        let api = self.ecr_api();
        let endpoint = format!("http://{}", api.server.address());
        let _controller =
            external_secrets(self.cluster, &[("AWS_ECR_ENDPOINT", &endpoint)]).unwrap();
        let interval = format!("refreshInterval: {}s", REFRESH.as_secs());
        let printed = manifest(PAGE, "ecr").unwrap();
        self.apply(&printed.replace("refreshInterval: 6h", &interval));
        self.refreshes(&api, 1);

        let file = self.refreshes(&api, REFRESHES);
        println!("ConfigFile: {file:?}");
        // Of two passwords requested at the same moment, the second one may arrive before or after the restart for the first.
        let starts = file.refreshes..=file.passwords;
        assert!(starts.contains(&file.kubelet_starts), "{file:?}");
        let check = self.check();
        assert!(
            check.contains("times or more in 24 hours, and each change restarted every kubelet"),
            "{check}"
        );

        self.apply(&manifest(PAGE, "short-lived-config").unwrap());
        wait("the credential provider", POLL, || {
            let status = self.product.node_status(self.node.name())?;
            let is_ready = self.product.condition("Ready")?.0 == "True";
            Ok((status["delivery"] == "CredentialProvider" && is_ready).then_some(()))
        });
        self.refreshes(&api, 1);
        let provider = self.refreshes(&api, REFRESHES);
        println!("CredentialProvider: {provider:?}");
        assert_eq!(provider.kubelet_starts, 0);
        let image = format!("{ECR}/team/app:1");
        self.product
            .start_pod("app", &image, self.node.name())
            .unwrap();
        self.product.wait_pod("app", false).unwrap();
        let check = self.check();
        assert!(!check.contains("every kubelet"), "{check}");
        self.delete("externalsecret", "additional-pull-secret");
        self.product.wait_clean().unwrap();
    }

    fn google_and_azure_give_passwords(&self) {
        let google = Server::web(None, |_| {
            let body =
                json!({"access_token": GOOGLE_TOKEN, "token_type": "Bearer", "expires_in": 3600});
            json_reply(&body)
        })
        .unwrap();
        // The managed identity of the machine, and the registry, which exchanges the identity's token for one of its own.
        let identity = Server::web(None, |_| {
            let body = json!({
                "access_token": "of-the-machine", "expires_on": "4000000000", "resource": "r", "token_type": "Bearer",
            });
            json_reply(&body)
        })
        .unwrap();
        let authority = Authority::new().unwrap();
        let certificate = authority.issue(&["127.0.0.1"], Validity::Now).unwrap();
        let azure = Server::web(Some(&certificate), |_| {
            json_reply(&json!({"refresh_token": AZURE_TOKEN}))
        })
        .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let trusted = directory.path().join("authority.pem");
        fs::write(&trusted, authority.pem()).unwrap();
        let endpoint = format!("http://{}/token", identity.address());
        let trusted = trusted.to_string_lossy();
        let env = [
            ("SSL_CERT_FILE", &*trusted),
            ("IDENTITY_ENDPOINT", endpoint.as_str()),
            ("IDENTITY_HEADER", "of-a-test"),
        ];
        let _controller = external_secrets(self.cluster, &env).unwrap();
        for (user, password) in [
            ("oauth2accesstoken", GOOGLE_TOKEN),
            (AZURE_USER, AZURE_TOKEN),
        ] {
            secrecy::remember_login(user, password);
        }
        let key = json!({
            "type": "service_account", "project_id": "my-project", "client_email": "a@example.com",
            "private_key_id": "k", "private_key": rsa_key(directory.path()),
            "token_uri": format!("http://{}/token", google.address()),
        });
        self.secret("google", &json!({"key.json": key.to_string()}));
        self.apply(&manifest(PAGE, "google").unwrap());
        let azure_host = azure.address();
        let printed = manifest(PAGE, "azure").unwrap();
        self.apply(&printed.replace("example.azurecr.io", &azure_host));
        self.product.ends("install --source google-pull-secret --source azure-pull-secret --delivery ConfigFile --apply", 0);
        let google_host = "europe-west3-docker.pkg.dev";
        self.wait_auth(google_host, &format!("oauth2accesstoken:{GOOGLE_TOKEN}"));
        self.wait_auth(&azure_host, &format!("{AZURE_USER}:{AZURE_TOKEN}"));
        let asked = azure.asked();
        assert_eq!(asked[0], "POST /oauth2/exchange", "{asked:?}");
        for name in ["google-pull-secret", "azure-pull-secret"] {
            self.delete("externalsecret", name);
        }
        self.product.wait_clean().unwrap();
    }

    /// Each response has a new password, and the registry rejects the previous one.
    fn ecr_api(&self) -> Ecr {
        let registry = self.cluster.registry();
        let answers = Arc::new(Mutex::new(Vec::new()));
        let given = Arc::clone(&answers);
        let server = Server::web(None, move |request| {
            let target = request.headers().get("X-Amz-Target");
            let target = target.map(|target| target.as_bytes());
            if target != Some(b"AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken") {
                return (400, Vec::new(), String::new());
            }
            let mut given = given.lock().unwrap();
            let password = format!("password-{}-of-an-ecr-of-a-test", given.len());
            registry.set_password(&password).unwrap();
            secrecy::remember_login(registry.user(), &password);
            let login = format!("{}:{password}", registry.user());
            let expires = jiff::Timestamp::now().as_second() + 2 * REFRESH.as_secs().cast_signed();
            let body = json!({"authorizationData": [{
                "authorizationToken": base64(&login), "expiresAt": expires,
                "proxyEndpoint": format!("https://{ECR}"),
            }]});
            given.push(Instant::now());
            let headers = vec![("Content-Type", "application/x-amz-json-1.1".to_owned())];
            (200, headers, body.to_string())
        })
        .unwrap();
        Ecr { server, answers }
    }

    fn images_of_ecr_are_those_of_the_private_registry(&self) {
        let certs = format!("etc/containerd/certs.d/{ECR}");
        let certs = self.node.root().join(certs);
        fs::create_dir_all(&certs).unwrap();
        let address = self.cluster.registry().address(Access::Private);
        let hosts = format!("server = \"http://{address}\"\n[host.\"http://{address}\"]\n");
        fs::write(certs.join("hosts.toml"), hosts).unwrap();
    }

    /// Waits for this many refreshes, and until the node has the password of the last one.
    fn refreshes(&self, api: &Ecr, number: usize) -> Refreshed {
        let (starts, passwords) = (self.starts(), api.answers().len());
        let deadline = DEADLINE + REFRESH * u32::try_from(number).unwrap();
        until("the refreshes", deadline, POLL, || {
            Ok((refreshes(&api.answers()[passwords..]) >= number).then_some(()))
        })
        .unwrap();
        // The Secret is written a moment after the response.
        std::thread::sleep(Duration::from_secs(1));
        self.product.wait_node_synced(self.node.name()).unwrap();
        let answers = &api.answers()[passwords..];
        Refreshed {
            refreshes: refreshes(answers),
            passwords: answers.len(),
            kubelet_starts: self.starts() - starts,
        }
    }

    fn check(&self) -> String {
        self.product.types("check", "").stdout
    }

    fn secret(&self, name: &str, data: &Value) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE},
            "stringData": data,
        });
        self.apply(&secret.to_string());
    }

    fn apply(&self, text: &str) {
        self.cluster.apply(text).unwrap();
    }

    fn delete(&self, kind: &str, name: &str) {
        let delete = ["delete", kind, name, "-n", NAMESPACE];
        self.cluster.kubectl(&delete).unwrap();
    }

    fn wait_auth(&self, registry: &str, pair: &str) {
        let wanted = Some(base64(pair));
        until("the expected entry on the node", DEADLINE, POLL, || {
            Ok((config_file::auth(self.node, registry)? == wanted).then_some(()))
        })
        .unwrap_or_else(|error| {
            let list = ["get", "externalsecret", "-n", NAMESPACE, "-o", "wide"];
            let list = self.cluster.kubectl(&list).unwrap_or_default();
            panic!("{error:#}: {:#}\n{list}", self.product.get(CONFIG).unwrap())
        });
    }

    fn starts(&self) -> usize {
        self.product.kubelet_starts(self.node).unwrap()
    }
}

impl Ecr {
    fn answers(&self) -> Vec<Instant> {
        self.answers.lock().unwrap().clone()
    }
}

/// Number of refreshes: two responses within half of the interval count as one.
fn refreshes(answers: &[Instant]) -> usize {
    let gaps = answers.windows(2).map(|pair| pair[1] - pair[0]);
    answers.len().min(1) + gaps.filter(|gap| *gap > REFRESH / 2).count()
}

fn json_reply(body: &Value) -> (u16, Vec<(&'static str, String)>, String) {
    let headers = vec![("Content-Type", "application/json".to_owned())];
    (200, headers, body.to_string())
}

fn rsa_key(directory: &Path) -> String {
    let file = directory.join("key.pem");
    let made = Command::new("openssl")
        .args(["genpkey", "-algorithm", "RSA", "-out"])
        .arg(&file)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success());
    fs::read_to_string(file).unwrap()
}

/// moto, a simulation of AWS; it ends when this is dropped.
struct Moto(Child);

impl Moto {
    fn start() -> Self {
        let child = Command::new("moto_server")
            .args(["-H", "127.0.0.1", "-p", &MOTO.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("`moto_server` of the Python package `moto[server]`");
        let moto = Self(child);
        wait("moto", POLL, || {
            Ok(TcpStream::connect(("127.0.0.1", MOTO)).ok().map(drop))
        });
        moto
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
