//! A registry on a local port that accepts every push and stores nothing, and archives to push to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use serde_json::{Value, json};

/// Returns the address. It runs until the process ends.
pub(crate) fn registry() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    address.to_string()
}

/// Handles one request. Answers anything that isn't HTTP, such as TLS, in plain text.
fn answer(mut stream: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut head = Vec::new();
    let mut length = 0;
    loop {
        let mut line = Vec::new();
        reader.read_until(b'\n', &mut line).ok()?;
        let text = String::from_utf8_lossy(&line).trim().to_ascii_lowercase();
        if let Some(number) = text.strip_prefix("content-length: ") {
            length = number.parse().ok()?;
        }
        if head.is_empty() && !text.contains("http/1.1") {
            return stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok();
        }
        head.push(text);
        if head.last().is_some_and(String::is_empty) {
            break;
        }
    }
    reader.take(length).read_to_end(&mut Vec::new()).ok()?;
    let status = match head[0].split(' ').next()? {
        "head" => "404 Not Found",
        "post" => "202 Accepted\r\nlocation: /v2/upload",
        "put" => "201 Created",
        _ => "200 OK",
    };
    let response = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(response.as_bytes()).ok()
}

/// Writes an archive for each image.
pub(crate) fn archives(directory: &Path) {
    for (name, digit) in [("globalps-controller", "a"), ("globalps-syncer", "b")] {
        let digest = format!("sha256:{}", digit.repeat(64));
        let descriptor = |digest: &str| json!({"mediaType": "m", "digest": digest, "size": 1});
        let mut root = descriptor(&digest);
        root["annotations"] = json!({"org.opencontainers.image.ref.name": format!("{name}:1.0.0")});
        let config = format!("sha256:{}", "c".repeat(64));
        let manifest = json!({"config": descriptor(&config), "layers": []});
        let file = std::fs::File::create(directory.join(format!("{name}.tar"))).expect("a file");
        let mut archive = tar::Builder::new(file);
        let mut add = |path: String, content: Value| {
            let content = content.to_string();
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            let added = archive.append_data(&mut header, path, content.as_bytes());
            added.expect("written");
        };
        let blob = |digest: &str| format!("blobs/{}", digest.replace(':', "/"));
        add("index.json".to_owned(), json!({"manifests": [root]}));
        add(blob(&digest), manifest);
        add(blob(&config), json!({}));
    }
}
