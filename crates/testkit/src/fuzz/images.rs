//! Generates image names, most of which match one of the keys.

use super::draw::{Change, Draw};
use super::kind::Kind;
use super::places::Places;

const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

pub(super) fn image(draw: &mut Draw, keys: &[String], places: &Places) -> String {
    let mut image = match draw.below(8) {
        0 | 1 if !keys.is_empty() => of_key(draw, keys, places),
        2 => short(draw),
        _ => format!("{}/{}", places.host(draw), places.path(draw)),
    };
    if draw.one_in(4) {
        draw.change(&SOUND, &mut image);
    }
    if draw.one_in(6) {
        draw.change(&ODD, &mut image);
    }
    image
}

/// The key as an image, or an image below it.
fn of_key(draw: &mut Draw, keys: &[String], places: &Places) -> String {
    draw.note(Kind::ImageOfKey);
    let at = draw.below(keys.len());
    let key = keys[at]
        .trim_start_matches("https://")
        .trim_start_matches("http://");
    let key = key.trim_end_matches('/').replace('*', "x");
    match draw.below(4) {
        0 => key,
        1 => {
            draw.note(Kind::ImageBesideKey);
            format!("{key}-evil/{}", places.path(draw))
        }
        _ => format!("{key}/{}", places.path(draw)),
    }
}

fn short(draw: &mut Draw) -> String {
    draw.kind(&[
        (Kind::ImageShort, "nginx"),
        (Kind::ImageShort, "org/app"),
        (Kind::ImageShort, "library/nginx"),
        (Kind::ImageShort, "a/b/c"),
        (Kind::ImageHub, "docker.io/nginx"),
        (Kind::ImageHub, "docker.io/library/nginx"),
        (Kind::ImageHub, "index.docker.io/nginx"),
        (Kind::ImageHub, "index.docker.io/org/app"),
        (Kind::ImageHub, "registry-1.docker.io/library/nginx"),
        (Kind::ImageHub, "docker.io/org/app"),
        (Kind::ImageHostOnly, "docker.io"),
        (Kind::ImageHostOnly, "quay.io"),
        (Kind::ImageHostOnly, "localhost"),
        (Kind::ImageHostOnly, "localhost:5000"),
    ])
    .to_owned()
}

const SOUND: [Change; 5] = [
    (Kind::ImageTag, |draw, image| {
        let tag = draw.pick(&[":1.0", ":latest", ":v1-rc.2_x", ":A", ":_"]);
        image.push_str(tag);
    }),
    (Kind::ImageTag, |_, image| image.push_str(":1")),
    (Kind::ImageDigest, |_, image| {
        image.push_str(&format!("@sha256:{HEX}"))
    }),
    (Kind::ImageDigest, |draw, image| {
        let digits = draw.pick(&[1, 2, 3]);
        let name = ["sha256", "sha512", "sha384"][digits - 1];
        let length = [64, 128, 96][digits - 1];
        image.push_str(&format!("@{name}:{}", &HEX.repeat(2)[..length]));
    }),
    (Kind::ImageTagAndDigest, |_, image| {
        image.push_str(&format!(":1.0@sha256:{HEX}"))
    }),
];

const ODD: [Change; 19] = [
    (Kind::ImageBadTag, |draw, image| {
        let tag = draw.pick(&[":", ":-x", ":.", ":a b", ":\u{e9}", ":a:b", ":a/b", ":+"]);
        image.push_str(tag);
    }),
    (Kind::ImageLongTag, |draw, image| {
        let length = draw.pick(&[127, 128, 129]);
        image.push(':');
        image.push_str(&"t".repeat(length));
    }),
    (Kind::ImageBadDigest, |draw, image| {
        let digest = draw.word(
            "@ @sha256 @sha256: @sha256:abc @md5:0123456789abcdef0123456789abcdef \
             @SHA256:0123456789abcdef0123456789abcdef \
             @sha256:0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF \
             @a+b.c-d:0123456789abcdef0123456789abcdef \
             @sha256:zzzz456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef \
             @1:0123456789abcdef0123456789abcdef",
        );
        image.push_str(digest);
    }),
    (Kind::ImageUpperCase, |draw, image| {
        let at = draw.place(image);
        if draw.one_in(2) {
            image[at..].make_ascii_uppercase();
        } else {
            image[..at].make_ascii_uppercase();
        }
    }),
    (Kind::ImageUpperCaseFirst, |draw, image| {
        *image = draw
            .pick(&[
                "Org/app",
                "ORG/app",
                "App",
                "LOCALHOST/app",
                "Docker.io/nginx",
                "\u{c9}/a",
                "a/B/c",
            ])
            .to_owned();
    }),
    (Kind::ImageEmpty, |draw, image| {
        *image = draw
            .pick(&["", "/", ":", "@", " ", ".", "..", ":5000", "//"])
            .to_owned();
    }),
    (Kind::ImageScheme, |draw, image| {
        let scheme = draw.pick(&["https://", "http://", "docker://", "//", "oci:"]);
        image.insert_str(0, scheme);
    }),
    (Kind::ImageSpace, |draw, image| {
        let space = draw.pick(&[" ", "\t", "\n", "\0", "\u{a0}"]);
        draw.insert(image, space);
    }),
    (Kind::ImageSlashes, |draw, image| match draw.below(3) {
        0 => image.insert(0, '/'),
        1 => image.push('/'),
        _ => draw.insert(image, "//"),
    }),
    (Kind::ImageSeparator, |draw, image| {
        let separator = draw.pick(&[
            "_", "__", "___", "-", "--", "---", ".", "..", "_.", "._", "-_",
        ]);
        draw.insert(image, separator);
    }),
    (Kind::ImagePort, |draw, image| {
        let port = draw.pick(&[
            ":5000", ":443", ":", ":abc", ":0", ":99999", ":5000:1", ":05000",
        ]);
        let at = image.find('/').unwrap_or(image.len());
        image.insert_str(at, port);
    }),
    (Kind::ImageIpv6, |draw, image| {
        let host = draw.word(
            "[::1] [::1]:5000 [fd00:1::a]:5000 [FD00:1::A] [fe80::1%25en0] [fe80::1%en0]:5000 \
             [::1 ::1 [] [:]:1 [g::1] [::ffff:10.0.0.1]:5000",
        );
        let at = image.find('/').unwrap_or(image.len());
        image.replace_range(..at, host);
    }),
    (Kind::ImageIdentifier, |draw, image| {
        let length = draw.pick(&[63, 64, 64, 65]);
        *image = format!("{HEX}0")[..length].to_owned();
    }),
    (Kind::ImageLong, |draw, image| {
        // At and around the limit of 255 for host and path, whichever of them it applies to.
        let length = draw.pick(&[
            200, 240, 244, 245, 246, 253, 254, 255, 256, 257, 263, 264, 265, 266, 300,
        ]);
        while image.len() < length {
            image.push('a');
        }
    }),
    (Kind::ImageNotAscii, |draw, image| {
        let piece = draw.pick(&[
            "\u{e9}",
            "\u{4f8b}",
            "\u{1f433}",
            "\u{fffd}",
            "\u{212a}",
            "\u{130}",
        ]);
        draw.insert(image, piece);
    }),
    (Kind::ImageSign, |draw, image| {
        let sign = draw.pick(&[
            "<", "%", "%2f", "?", "#", "*", "[", "]", "\\", "+", "~", "=", "&", "!", ",",
        ]);
        draw.insert(image, sign);
    }),
    (Kind::ImageHostOdd, |draw, image| {
        let host = draw.word(
            "-quay.io quay-.io quay..io .quay.io quay.io. a_b.io quay q-u.a--y.io 1.2.3.4.5 x.-y \
             localhost. docker.io.",
        );
        let at = image.find('/').unwrap_or(image.len());
        image.replace_range(..at, host);
    }),
    (Kind::ImageEdited, |draw, image| {
        for _ in 0..=draw.below(2) {
            if draw.one_in(2) {
                let sign = draw.pick(&["/", ":", ".", "@", "-", "_", "a", "0", "A"]);
                draw.insert(image, sign);
            } else if !image.is_empty() {
                let at = draw.below(image.len());
                if image.is_char_boundary(at) {
                    image.remove(at);
                }
            }
        }
    }),
    (Kind::ImageDot, |_, image| {
        let at = image.find('/').unwrap_or(image.len());
        image.insert(at, '.');
    }),
];
