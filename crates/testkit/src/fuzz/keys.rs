//! Generates keys of `auths`: registries as users write them.

use super::draw::Draw;
use super::key_changes::CHANGES;
use super::kind::Kind;
use super::places::Places;

/// The keys of one file; sometimes a key occurs twice, or in two spellings.
pub(super) fn keys(draw: &mut Draw, places: &Places) -> Vec<String> {
    let number = match draw.below(20) {
        0 => 0,
        1..=17 => 1 + draw.below(5),
        18 => 6 + draw.below(6),
        _ => 30,
    };
    // Some files have only valid keys.
    let odd = draw.pick(&[0, 2, 2, 4]);
    let mut keys: Vec<String> = Vec::new();
    while keys.len() < number {
        let mut key = match keys.as_slice() {
            [_, ..] if draw.one_in(10) => again(draw, &keys),
            _ => sound(draw, places),
        };
        if odd > 0 && draw.one_in(odd) {
            draw.change(&CHANGES, &mut key);
            if draw.one_in(4) {
                draw.note(Kind::KeyTwoOddities);
                draw.change(&CHANGES, &mut key);
            }
        }
        keys.push(key);
    }
    keys
}

/// A key of the file again, or another spelling of it.
fn again(draw: &mut Draw, keys: &[String]) -> String {
    let at = draw.below(keys.len());
    let key = keys[at].clone();
    if draw.one_in(3) {
        draw.note(Kind::KeyTwice);
        return key;
    }
    draw.note(Kind::KeyRespelled);
    let spelling = draw.below(5);
    match spelling {
        0 => format!("https://{key}"),
        1 => format!("http://{key}"),
        2 => format!("{key}/"),
        3 => format!("{key}/v1/"),
        _ => format!("https://{key}/v2/"),
    }
}

fn sound(draw: &mut Draw, places: &Places) -> String {
    let host = places.host(draw);
    let path = places.path(draw);
    match draw.below(5) {
        0 | 1 => host.to_owned(),
        2 => {
            draw.note(Kind::KeyRepository);
            format!("{host}/{path}")
        }
        3 => {
            draw.note(Kind::KeyNamespace);
            let segments: Vec<&str> = path.split('/').collect();
            let length = 1 + draw.below(segments.len());
            format!("{host}/{}", segments[..length].join("/"))
        }
        _ => {
            draw.note(Kind::KeyPartOfName);
            let at = draw.place(path);
            format!("{host}/{}", &path[..at])
        }
    }
}
