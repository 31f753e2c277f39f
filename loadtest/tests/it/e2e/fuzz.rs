//! Protocol bytes at random, on every subject that a tenant or an agent may publish on.

use crate::e2e::{
    raw::Wire,
    suite::{Outcome, Suite, id, queries_answered, small},
};
use identity::Creds;
use ledger::memory::Seeded;

const SEED: u64 = 0x0ddb_a115;
/// Of each sender.
const FRAMES: usize = 400;
/// What header blocks, payloads and subjects may go wrong by.
const PIECES: [&[u8]; 20] = [
    b"\r",
    b"\n",
    b"\r\n",
    b"\0",
    b":",
    b" ",
    b"\t",
    b"\xff",
    b"\xc3\x28",
    "\u{2028}".as_bytes(),
    b"a: b\r\n",
    b"A: x\rB: y\r\n",
    b"NATS/1.0",
    b"NATS/1.0 503\r\n",
    b"Apportion-Reply:",
    b"traceparent: 00-",
    b"Nats-Msg-Id: 1\r\n",
    b"Nats-Expected-Last-Sequence: 1\r\n",
    b"\x08\x01",
    b"x",
];

struct Fuzz(Seeded);

impl Fuzz {
    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.0.below(of.len() as u64) as usize]
    }

    fn pieces(&mut self, count_max: u64) -> Vec<u8> {
        let count = self.0.below(count_max);
        (0..count)
            .flat_map(|_| self.one(&PIECES).to_vec())
            .collect()
    }

    fn noise(&mut self, bytes_max: u64) -> Vec<u8> {
        let bytes = self.0.below(bytes_max);
        (0..bytes).map(|_| self.0.below(256) as u8).collect()
    }

    fn block(&mut self) -> Vec<u8> {
        match self.0.below(5) {
            0 => self.noise(200),
            1 => self.pieces(20),
            2 => [b"NATS/1.0\r\n", &b"a: b\r\n".repeat(5_000)[..], b"\r\n"].concat(),
            3 => [b"NATS/1.0 ", &self.pieces(4)[..], b"\r\n\r\n"].concat(),
            _ => [b"NATS/1.0\r\n", &self.pieces(12)[..], b"\r\n\r\n"].concat(),
        }
    }

    fn payload(&mut self) -> Vec<u8> {
        match self.0.below(2) {
            0 => self.noise(100),
            _ => self.pieces(10),
        }
    }

    /// Two of three have lengths that are true.
    fn frame(&mut self, subjects: &[Vec<u8>]) -> Vec<u8> {
        let all: Vec<&[u8]> = subjects.iter().map(Vec::as_slice).collect();
        let subject = self.one(&all);
        let reply: &[u8] = self.one(&[&b""[..], b" _INBOX.x", b" _INBOX.\xff"]);
        let (block, payload) = (self.block(), self.payload());
        let (head, total) = (block.len() as u64, (block.len() + payload.len()) as u64);
        let (verb, lengths) = match self.0.below(15) {
            0..7 => ("HPUB", format!("{head} {total}")),
            // A border that is elsewhere.
            7..9 => ("HPUB", format!("{} {total}", self.0.below(total + 1))),
            9 => ("PUB", format!("{total}")),
            10 => ("HPUB", format!("{} {total}", total + 1 + self.0.below(100))),
            11 => ("HPUB", format!("{head} {}", self.0.below(2 * total + 2))),
            12 => ("HPUB", format!("-{head} {total}")),
            13 => ("HPUB", format!("{head} {}", u64::MAX)),
            _ => ("PUB", format!("{}", self.0.below(2 * total + 2))),
        };
        let parts = [
            verb.as_bytes(),
            b" ",
            subject,
            reply,
            b" ",
            lengths.as_bytes(),
            b"\r\n",
            &block,
            &payload,
            b"\r\n",
        ];
        parts.concat()
    }

    /// Each frame on a connection of its own: what comes behind some of them is anybody's guess.
    async fn attack(&mut self, url: &str, login: &Creds, subjects: &[Vec<u8>]) -> Outcome {
        for _ in 0..FRAMES {
            let frame = self.frame(subjects);
            Wire::connect(url, Some(login)).await?.end(&frame).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn random_bytes_harm_nobody_else() -> Outcome {
    let suite = Suite::start().await;
    let other = suite.tenant("tenant-b").await;
    let url = &suite.servers.nats.url;
    let mut fuzz = Fuzz(Seeded::new(SEED));
    let of = |subject: String| subject.into_bytes();
    let own = [
        of(suite.subjects.ingress("tenant-a")),
        of(suite.subjects.query("tenant-a", "feed")),
        of(suite.subjects.query("tenant-a", "allocation")),
        of(suite.subjects.query("tenant-a", "no-such")),
    ];
    fuzz.attack(url, &suite.servers.held("tenant:tenant-a"), &own)
        .await?;
    let strange = |what: &str| {
        let subject = suite.subjects.node("?", what).into_bytes();
        let byte = |byte| if byte == b'?' { 0xff } else { byte };
        subject.into_iter().map(byte).collect()
    };
    let nodes = ["report", "heartbeat", "sync"];
    let nodes: Vec<Vec<u8>> = nodes
        .iter()
        .flat_map(|what| [of(suite.subjects.node("n1", what)), strange(what)])
        .collect();
    fuzz.attack(url, &suite.servers.held("fleet"), &nodes)
        .await?;

    let mut agent = suite.node("n2").await;
    let operation_id = id();
    let submitted = other.submit(small("behind"), operation_id.clone()).await?;
    agent.run(&submitted.allocation_id, 1).await;
    queries_answered(&other, &operation_id, &submitted.allocation_id).await;
    let attacker = suite.tenant("tenant-a").await;
    suite.assert_healthy(&attacker).await;
    suite.assert_verified().await;
    suite.close().await;
    Ok(())
}
