//! Generates `auth`: base64 of `user:password`, and damaged forms of it.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE};

use super::draw::{Change, Draw};
use super::json::{INVALID_UTF8, SURROGATE};
use super::kind::Kind;

/// A value that the kubelet accepts.
pub(super) fn sound(draw: &mut Draw) -> String {
    let mut auth = BASE64_STANDARD.encode(pair(draw));
    if draw.one_in(5) {
        draw.change(&SOUND, &mut auth);
    }
    auth
}

/// A value that the kubelet may reject.
pub(super) fn odd(draw: &mut Draw) -> String {
    let mut auth = BASE64_STANDARD.encode(pair(draw));
    draw.change(&ODD, &mut auth);
    auth
}

/// User, colon, password. Every password in a file is unique, so that it identifies its entry.
fn pair(draw: &mut Draw) -> Vec<u8> {
    let number = draw.below(1_000_000).to_string();
    let sound = format!("user:{number}");
    let long = format!("robot${}:{number}", "x".repeat(draw.below(200)));
    match draw.below(30) {
        0 => draw
            .kind(&[
                (Kind::PairNoUser, &b":p"[..]),
                (Kind::PairNoPassword, b"u:"),
                (Kind::PairNeither, b":"),
                (Kind::PairColons, b"u:p:a::b:"),
                (Kind::PairNul, b"u:\0p\0\0"),
                (Kind::PairNul, b"u:\0"),
                (Kind::PairNul, b"\0:p"),
                (Kind::PairNotUtf8, b"\xff\xfe:\xc3\x28"),
                (Kind::PairSpace, b" u : p\n"),
                (Kind::PairSpace, b"u:p\r\n"),
                (Kind::PairSpace, b"u:p \n\n"),
                (Kind::PairByteOrderMark, b"\xef\xbb\xbfu:p"),
                (Kind::PairByteOrderMark, b"u:\xef\xbb\xbfp"),
                (Kind::PairUtf16, b"u\0:\0p\0"),
                (Kind::PairUtf16, b"\0u\0:\0p"),
                (Kind::PairUtf16, b"\xff\xfeu\0:\0p\0"),
                (Kind::PairUtf16, b"u\0:\0p\0\r\0\n\0"),
            ])
            .to_vec(),
        1 | 2 => long.into_bytes(),
        _ => sound.into_bytes(),
    }
}

fn unpadded(auth: &str) -> &str {
    auth.trim_end_matches('=')
}

/// Changes the unused bits of the last character, which encode no data.
fn dirty(auth: &mut String) {
    let padding = auth.len() - unpadded(auth).len();
    let last = auth.len() - padding;
    if padding > 0 {
        let digit = auth[last - 1..last].bytes().next().unwrap_or_default();
        // The encoded data ends in zero bits, so the next digit is valid too, except at the end of each range.
        let next = match digit {
            b'Z' => b'a',
            b'z' => b'0',
            b'9' => b'+',
            other => other + 1,
        };
        auth.replace_range(last - 1..last, &char::from(next).to_string());
    }
}

const SOUND: [Change; 6] = [
    (Kind::AuthUnpadded, |_, auth| {
        *auth = unpadded(auth).to_owned()
    }),
    (Kind::AuthLineBreak, |draw, auth| {
        let line_break = draw.pick(&["\n", "\r\n", "\r", "\n\n"]);
        draw.insert(auth, line_break);
    }),
    (Kind::AuthLineBreakAtEnd, |draw, auth| {
        let line_break = draw.pick(&["\n", "\r\n"]);
        auth.push_str(line_break);
    }),
    (Kind::AuthWrapped, |_, auth| {
        let lines: Vec<&str> = auth
            .as_bytes()
            .chunks(4)
            .filter_map(|line| std::str::from_utf8(line).ok())
            .collect();
        *auth = lines.join("\n");
    }),
    (Kind::AuthDirtyBits, |_, auth| dirty(auth)),
    (Kind::AuthEmpty, |_, auth| auth.clear()),
];

const ODD: [Change; 17] = [
    (Kind::AuthPaddingMissing, |_, auth| {
        *auth = BASE64_STANDARD.encode(b"user:passwd");
        auth.push_str("MQ=");
    }),
    (Kind::AuthPaddingMore, |draw, auth| {
        let more = draw.pick(&["=", "==", "===", "="]);
        auth.push_str(more);
    }),
    (Kind::AuthPaddingInside, |draw, auth| draw.insert(auth, "=")),
    (Kind::AuthPaddingOnly, |draw, auth| {
        *auth = draw
            .pick(&["=", "==", "====", "A=", "A===", "AA=", "\n=", "=\n="])
            .to_owned();
    }),
    (Kind::AuthPaddingSplit, |draw, auth| {
        *auth = draw
            .pick(&[
                "dTpwYQ=\n=",
                "dTpwYQ=\r\n=\r\n",
                "dTpwYQ\n==",
                "dTpwYQ= =",
                "dTpwYQ==\n=",
                "dTpw\n\n",
                "dTpwYQ\n",
                "dTpwYQ=\n",
            ])
            .to_owned();
    }),
    (Kind::AuthUrlAlphabet, |_, auth| {
        *auth = BASE64_URL_SAFE.encode(b"u:\xff\xef\xbe\xfb\xff")
    }),
    (Kind::AuthSpace, |draw, auth| {
        let space = draw.pick(&[" ", "\t", "  ", "\u{b}", "\u{c}"]);
        match draw.below(3) {
            0 => auth.insert_str(0, space),
            1 => auth.push_str(space),
            _ => draw.insert(auth, space),
        }
    }),
    (Kind::AuthUnicodeSpace, |draw, auth| {
        // Go trims these before it looks for the padding.
        let space = draw.pick(&[
            "\u{85}", "\u{a0}", "\u{2003}", "\u{3000}", "\u{feff}", "\u{2028}", "\u{200b}",
        ]);
        if draw.one_in(2) {
            *auth = unpadded(auth).to_owned();
        }
        auth.push_str(space);
    }),
    (Kind::AuthOtherCharacter, |draw, auth| {
        let character = draw.pick(&[
            "!", "-", "_", ":", ".", "\\", "\"", "\0", "\u{7f}", "\u{e9}", "\u{ff21}", "%",
        ]);
        draw.insert(auth, character);
    }),
    (Kind::AuthCutOff, |draw, auth| {
        let at = draw.place(auth);
        auth.truncate(at);
    }),
    (Kind::AuthLonger, |draw, auth| {
        let piece = draw.pick(&["A", "AA", "AAA", "AAAA"]);
        draw.insert(auth, piece);
    }),
    (Kind::AuthNoColon, |draw, auth| {
        let bytes = draw.pick(&[
            &b"user"[..],
            b"u",
            b"user password",
            b"\0",
            b"\xff\xff",
            b"user\xef\xbc\x9apassword",
        ]);
        *auth = BASE64_STANDARD.encode(bytes);
        if draw.one_in(4) {
            *auth = BASE64_STANDARD_NO_PAD.encode(bytes);
        }
    }),
    (Kind::AuthPlain, |draw, auth| {
        *auth = draw
            .pick(&[
                "user:password",
                "pants",
                "Basic dTpw",
                "token",
                "****",
                "null",
            ])
            .to_owned();
    }),
    (Kind::AuthTwice, |draw, auth| {
        auth.push_str(draw.pick(&["", "", "\n", "\r\n"]));
        for _ in 0..1 + draw.below(3) {
            *auth = BASE64_STANDARD.encode(&*auth);
        }
        if draw.one_in(4) {
            *auth = unpadded(auth).to_owned();
        }
    }),
    (Kind::AuthWhiteOnly, |draw, auth| {
        *auth = draw.pick(&[" ", "\n", "\r\n", "\t", "\n\n\n\n"]).to_owned();
    }),
    (Kind::AuthInvalidUtf8, |draw, auth| {
        draw.insert(auth, INVALID_UTF8)
    }),
    (Kind::AuthSurrogate, |draw, auth| {
        draw.insert(auth, SURROGATE)
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_bits_are_bits_that_mean_nothing() {
        for (clean, expected) in [
            ("dTpw", "dTpw"),
            ("dTpwYQ==", "dTpwYR=="),
            ("dTpwYWI=", "dTpwYWJ="),
        ] {
            let mut auth = clean.to_owned();
            dirty(&mut auth);
            assert_eq!(auth, expected);
        }
    }
}
