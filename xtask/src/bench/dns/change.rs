//! From the write of an EndpointSlice to the changed answer, for both servers at once.
#![expect(clippy::disallowed_types, reason = "a benchmark measures real time")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::load::{Times, connect, question};
use super::servers::{Bed, Server};

/// After this an answer is not coming.
const PATIENCE: Duration = Duration::from_secs(20);

/// A way to the API server without TLS: `kubectl proxy`. Killed when dropped.
struct Proxy {
    child: Child,
    stream: BufReader<TcpStream>,
}

/// The times of each server, and of the write itself.
pub(super) fn measure(
    bed: &Bed,
    servers: &[Server; 2],
    changes: u32,
) -> Result<Vec<(&'static str, Times)>> {
    let mut proxy = Proxy::start(bed)?;
    let mut written = Vec::new();
    let mut seen = [Vec::new(), Vec::new()];
    for number in 0..changes {
        let address = [
            10,
            200,
            u8::try_from(number / 250)?,
            u8::try_from(number % 250 + 1)?,
        ];
        let began = Instant::now();
        let (write, found) = std::thread::scope(|scope| {
            let found = [0, 1].map(|index| {
                let server = servers[index].address;
                scope.spawn(move || wait_answer(server, address, began))
            });
            let write = proxy.change(address, began);
            (write, found.map(|thread| thread.join().ok()))
        });
        written.push(write?);
        for (times, found) in seen.iter_mut().zip(found) {
            times.push(found.context("a poll has panicked")??);
        }
    }
    let [ours, theirs] = seen;
    Ok(vec![
        ("the write alone", Times::new(written, 0)),
        (servers[0].name, Times::new(ours, 0)),
        (servers[1].name, Times::new(theirs, 0)),
    ])
}

/// Asks until the answer has the address.
fn wait_answer(server: SocketAddr, address: [u8; 4], began: Instant) -> Result<Duration> {
    /// Often enough to tell the servers apart, and not so often as to be the load.
    const PAUSE: Duration = Duration::from_micros(200);
    let socket = connect(server)?;
    let packet = question("set-0.shop.svc.clusterset.local");
    let mut buffer = [0; 1_500];
    while began.elapsed() < PATIENCE {
        socket.send(&packet)?;
        let length = socket.recv(&mut buffer)?;
        if buffer[..length].windows(4).any(|octets| octets == address) {
            return Ok(began.elapsed());
        }
        std::thread::park_timeout(PAUSE);
    }
    bail!("{server} does not answer with the change")
}

impl Proxy {
    fn start(bed: &Bed) -> Result<Self> {
        let mut child = bed
            .cluster()
            .kubectl_command()
            .args(["proxy", "--port=0"])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        let (_, address) = line.trim().rsplit_once(' ').context("no address")?;
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let stream = BufReader::new(stream);
        Ok(Self { child, stream })
    }

    /// Gives the slice one endpoint; how long the answer to that took.
    fn change(&mut self, address: [u8; 4], began: Instant) -> Result<Duration> {
        let [a, b, c, d] = address;
        let body = format!(
            r#"{{"endpoints":[{{"addresses":["{a}.{b}.{c}.{d}"],"conditions":{{"ready":true}}}}]}}"#
        );
        let path = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/set-0";
        let request = format!(
            "PATCH {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: \
             application/merge-patch+json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut status = String::new();
        self.stream.read_line(&mut status)?;
        let took = began.elapsed();
        ensure!(status.contains(" 200 "), "{status}");
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        ensure!(length > 0, "an answer without a length");
        let mut rest = vec![0; length];
        self.stream.read_exact(&mut rest)?;
        Ok(took)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
