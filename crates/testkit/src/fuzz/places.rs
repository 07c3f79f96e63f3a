//! The few registries of one case. Keys and images that share no registry would test nothing.

use super::draw::Draw;
use super::kind::Kind;

const HOSTS: [(Kind, &str); 27] = [
    (Kind::HostPlain, "quay.io"),
    (Kind::HostPlain, "quay.io"),
    (Kind::HostPlain, "quay.io"),
    (Kind::HostPlain, "reg.example.com"),
    (Kind::HostPlain, "reg.example.com"),
    (Kind::HostPlain, "foo.azurecr.io"),
    (
        Kind::HostPlain,
        "123456789012.dkr.ecr.us-east-1.amazonaws.com",
    ),
    (Kind::HostPlain, "a.b.c.d.e.example.com"),
    (Kind::HostPlain, "xn--bcher-kva.example"),
    (Kind::HostPort, "reg.example.com:5000"),
    (Kind::HostPort, "quay.io:443"),
    (Kind::HostPort, "reg:5000"),
    (Kind::HostHub, "docker.io"),
    (Kind::HostHub, "docker.io"),
    (Kind::HostHub, "index.docker.io"),
    (Kind::HostHub, "registry-1.docker.io"),
    (Kind::HostHub, "hub.docker.com"),
    (Kind::HostLocal, "localhost"),
    (Kind::HostLocal, "localhost:5000"),
    (Kind::HostIpv4, "10.0.0.1:5000"),
    (Kind::HostIpv4, "10.0.0.1"),
    (Kind::HostIpv6, "[::1]:5000"),
    (Kind::HostIpv6, "[fd00:1::a]"),
    (Kind::HostWithoutDot, "registry"),
    (Kind::HostUpperCase, "Quay.io"),
    (Kind::HostUpperCase, "REG:5000"),
    (Kind::HostOdd, "a_b.example.com"),
];

const PATHS: [&str; 14] = [
    "org",
    "org",
    "org/app",
    "org/app",
    "org/team/app",
    "org-evil/app",
    "organisation/app",
    "library/nginx",
    "library/nginx",
    "nginx",
    "a/b/c/d",
    "v1/app",
    "v2/org/app",
    "o_r.g--x/y__z",
];

pub(super) struct Places {
    hosts: Vec<&'static str>,
    paths: Vec<&'static str>,
}

impl Places {
    pub(super) fn draw(draw: &mut Draw) -> Self {
        let hosts = (0..1 + draw.below(2)).map(|_| draw.kind(&HOSTS)).collect();
        let paths = (0..1 + draw.below(3)).map(|_| draw.pick(&PATHS)).collect();
        Self { hosts, paths }
    }

    pub(super) fn host(&self, draw: &mut Draw) -> &'static str {
        draw.pick(&self.hosts)
    }

    pub(super) fn path(&self, draw: &mut Draw) -> &'static str {
        draw.pick(&self.paths)
    }
}
