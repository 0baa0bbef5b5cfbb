//! Packets of a mixed load: questions with and without an answer, broken ones, and noise.

/// Names of `examples/shop`, and names that are not there.
const NAMES: [&str; 10] = [
    "web.shop.svc.clusterset.local",
    "WEB.Shop.svc.clusterset.local",
    "db.shop.svc.clusterset.local",
    "db-0.tokyo.db.shop.svc.clusterset.local",
    "_http._tcp.web.shop.svc.clusterset.local",
    "clusterset.local",
    "nosuch.shop.svc.clusterset.local",
    "a.b.c.d.e.f.g.h.clusterset.local",
    "kubernetes.default.svc.cluster.local",
    "shop.svc.clusterset.local",
];

/// A, NS, SOA, PTR, TXT, AAAA, SRV, AXFR, ANY, and one that nobody has.
const TYPES: [u16; 10] = [1, 2, 6, 12, 16, 28, 33, 252, 255, 4_711];

/// A sequence of packets that is the same for the same seed.
pub(super) struct Packets {
    state: u64,
    packet: Vec<u8>,
}

impl Packets {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            // Xorshift must not start from zero.
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            packet: Vec::new(),
        }
    }

    fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// A number below a small bound.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random() >> 33).unwrap_or_default() % bound
    }

    /// The next packet, and whether it must have an answer.
    pub(super) fn next(&mut self) -> (&[u8], bool) {
        let name = NAMES[self.below(NAMES.len())];
        let kind = TYPES[self.below(TYPES.len())];
        let choice = self.below(10);
        self.packet = question(name, kind);
        let is_answered = match choice {
            // Noise of any length.
            0 => {
                let length = self.below(600);
                self.packet = (0..length).map(|_| self.octet()).collect();
                false
            }
            // A question with some octets changed.
            1 | 2 => {
                for _ in 0..=self.below(4) {
                    let at = self.below(self.packet.len());
                    self.packet[at] = self.octet();
                }
                false
            }
            // One that is cut off.
            3 => {
                let length = self.below(self.packet.len());
                self.packet.truncate(length);
                false
            }
            // With EDNS0 of a random size.
            4 | 5 => {
                self.packet[11] = 1;
                let size = [self.octet(), self.octet()];
                self.packet
                    .extend([0, 0, 41, size[0], size[1], 0, 0, 0, 0, 0, 0]);
                true
            }
            _ => true,
        };
        (&self.packet, is_answered)
    }

    fn octet(&mut self) -> u8 {
        (self.random() >> 40).to_le_bytes()[0]
    }
}

/// A question.
pub(super) fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut packet = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        packet.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
        packet.extend(label.as_bytes());
    }
    packet.push(0);
    packet.extend(kind.to_be_bytes());
    packet.extend([0, 1]);
    packet
}
