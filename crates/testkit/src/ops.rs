//! Random steps: what users, other clusters, networks and servers do to a site. Pools of names are
//! small, so that steps meet.

use proptest::collection::vec;
use proptest::prelude::*;
use tombolo_model::object::GlobalMark;
use tombolo_model::service::IpFamily;

use crate::shapes::{ExportShape, ServiceShape, SliceShape};
use crate::site::Fate;

/// The namespaces of the pool.
pub const NAMESPACES: [&str; 2] = ["shop", "web"];
/// The Services of the pool; the last one has a name that Kubernetes 1.33 does not allow.
pub const SERVICES: [&str; 4] = ["a", "b", "checkout", "9lives"];
/// The clusters of the pool; the second is the site itself.
pub const CLUSTERS: [&str; 4] = ["b.east", "m", "k", "z-9"];

/// A service of the pool: namespace and name.
pub type Key = (usize, usize);

/// What a namespace becomes.
#[derive(Clone, Debug)]
pub enum NamespaceState {
    /// It is there, marked so.
    There(GlobalMark),
    /// It is going away.
    Terminating,
    /// It is gone, with everything in it.
    Gone,
}

/// What becomes of another cluster's session.
#[derive(Clone, Copy, Debug)]
pub enum PeerSession {
    /// A new one that has published everything.
    Synced,
    /// A new one that has not.
    Unsynced,
    /// A new one that has, but sees nothing any more.
    Blind,
    /// None.
    Gone,
    /// The last one again, as a replicator puts it back that was replaced.
    Back,
}

/// What a hand does to a derived object.
#[derive(Clone, Copy, Debug)]
pub enum Edit {
    /// Deletes it.
    Delete,
    /// Takes our labels off.
    Unlabel,
    /// Adds a label and annotations, one of them another tool's.
    Decorate,
    /// Takes the owner off.
    Disown,
    /// Changes what it says.
    Spec,
    /// Gives it a finalizer.
    Stick,
}

/// What the operator records for a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// When it joined, on the scale of the ages of exports.
    pub joined: u8,
    /// Whether its endpoints may be in some networks only.
    pub is_confined: bool,
    /// Whether it may export from the first namespace only.
    pub shop_only: bool,
}

impl Grant {
    fn any() -> impl Strategy<Value = Self> {
        let few = || prop_oneof![3 => Just(false), 1 => Just(true)];
        (0..4_u8, few(), few()).prop_map(|(joined, is_confined, shop_only)| Self {
            joined,
            is_confined,
            shop_only,
        })
    }
}

/// One step.
#[derive(Clone, Debug)]
pub enum Op {
    /// A namespace changes.
    Namespace(usize, NamespaceState),
    /// A Service is created or replaced.
    Service(Key, ServiceShape),
    /// A Service is deleted.
    NoService(Key),
    /// A ServiceExport is created or replaced.
    Export(Key, ExportShape),
    /// A ServiceExport is deleted.
    NoExport(Key),
    /// An EndpointSlice of a Service is created or replaced.
    Slice(Key, u8, SliceShape),
    /// One is deleted.
    NoSlice(Key, u8),
    /// Another cluster exports a service.
    Peer(usize, Key, ServiceShape, ExportShape),
    /// It publishes endpoints, instead of those it had.
    PeerEndpoints(usize, Key, SliceShape),
    /// It withdraws a service.
    NoPeer(usize, Key),
    /// Its session changes.
    PeerSession(usize, PeerSession),
    /// The operator takes a cluster's endpoints out, or back; also those of the site itself.
    Drain(usize, bool),
    /// The operator records what a cluster may do, also of the site itself.
    Grant(usize, Grant),
    /// Whether exports count as created no earlier than their cluster joined.
    FromJoin(bool),
    /// The watch of the registry is live, or is not.
    Heard(bool),
    /// A Service that is not ours takes the derived name.
    Stranger(Key),
    /// It goes.
    NoStranger(Key),
    /// A ServiceImport is made by hand.
    ForeignImport(Key),
    /// A hand edits one of the derived objects.
    Hand(usize, Edit),
    /// The network's families change.
    Families(Vec<IpFamily>),
    /// Whether the site's service networks are known, in which some endpoints of the pool are.
    ServiceCidrs(bool),
    /// Some messages reach the engine.
    Deliver(usize),
    /// One is lost.
    Lose(usize),
    /// One comes twice.
    Double(usize),
    /// They come in another order.
    Shuffle(u64),
    /// A kind is listed again.
    Relist(usize),
    /// The registry is listed again.
    RelistRegistry,
    /// The registry is set back by so many changes, or emptied.
    Restore(usize),
    /// Actions are carried out, or not.
    Perform(Fate, usize),
    /// Later actions overtake earlier ones.
    Overtake(usize),
    /// Everything is delivered and done.
    Run,
    /// Time passes.
    Wait(i64),
    /// A new process.
    Restart(usize),
    /// The registry cannot be reached.
    Disconnect,
    /// It can.
    Connect,
    /// Everything is listed and compared with the oracle.
    Settle,
}

/// A service of the pool.
pub fn key() -> impl Strategy<Value = Key> {
    let name = prop_oneof![8 => Just(0_usize), 4 => Just(1), 2 => Just(2), 1 => Just(3)];
    (prop_oneof![5 => Just(0_usize), 1 => Just(1)], name)
}

fn peer() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0_usize), Just(2), Just(3)]
}

/// Families of a network or Service.
pub fn families() -> impl Strategy<Value = Vec<IpFamily>> {
    use IpFamily::{V4, V6};
    prop_oneof![
        4 => Just(vec![V4]),
        1 => Just(vec![V6]),
        3 => Just(vec![V4, V6]),
        2 => Just(vec![V6, V4]),
    ]
}

fn namespace_state() -> impl Strategy<Value = NamespaceState> {
    prop_oneof![
        4 => Just(NamespaceState::There(GlobalMark::Absent)),
        1 => Just(NamespaceState::There(GlobalMark::True)),
        1 => Just(NamespaceState::There(GlobalMark::False)),
        1 => Just(NamespaceState::There(GlobalMark::Other("yes".into()))),
        1 => Just(NamespaceState::Terminating),
        1 => Just(NamespaceState::Gone),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        3 => Just(Edit::Delete),
        1 => Just(Edit::Unlabel),
        1 => Just(Edit::Decorate),
        1 => Just(Edit::Disown),
        2 => Just(Edit::Spec),
        1 => Just(Edit::Stick),
    ]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Done),
        2 => Just(Fate::Refused),
        1 => Just(Fate::UnknownDone),
        1 => Just(Fate::UnknownNotDone),
    ]
}

/// What happens in this cluster.
fn local() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (0..2_usize, namespace_state()).prop_map(|(n, s)| Op::Namespace(n, s)),
        6 => (key(), ServiceShape::any()).prop_map(|(k, s)| Op::Service(k, s)),
        1 => key().prop_map(Op::NoService),
        6 => (key(), ExportShape::any()).prop_map(|(k, s)| Op::Export(k, s)),
        2 => key().prop_map(Op::NoExport),
        8 => (key(), 0..3_u8, SliceShape::any()).prop_map(|(k, n, s)| Op::Slice(k, n, s)),
        2 => (key(), 0..3_u8).prop_map(|(k, n)| Op::NoSlice(k, n)),
        1 => key().prop_map(Op::Stranger),
        1 => key().prop_map(Op::NoStranger),
        1 => key().prop_map(Op::ForeignImport),
        4 => (0..12_usize, edit()).prop_map(|(at, e)| Op::Hand(at, e)),
        1 => families().prop_map(Op::Families),
        1 => any::<bool>().prop_map(Op::ServiceCidrs),
    ]
}

/// What other clusters do.
fn remote() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (peer(), key(), ServiceShape::any(), ExportShape::any())
            .prop_map(|(c, k, s, e)| Op::Peer(c, k, s, e)),
        8 => (peer(), key(), SliceShape::any()).prop_map(|(c, k, s)| Op::PeerEndpoints(c, k, s)),
        3 => (peer(), key()).prop_map(|(c, k)| Op::NoPeer(c, k)),
        1 => (peer(), prop_oneof![
            Just(PeerSession::Synced),
            Just(PeerSession::Unsynced),
            Just(PeerSession::Blind),
            Just(PeerSession::Gone),
            Just(PeerSession::Gone),
            Just(PeerSession::Back),
        ])
            .prop_map(|(c, s)| Op::PeerSession(c, s)),
        1 => (0..4_usize, any::<bool>()).prop_map(|(c, out)| Op::Drain(c, out)),
        1 => (0..4_usize, Grant::any()).prop_map(|(c, grant)| Op::Grant(c, grant)),
        1 => any::<bool>().prop_map(Op::FromJoin),
    ]
}

/// What happens on the way.
fn faults() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1..6_usize).prop_map(Op::Deliver),
        2 => (0..8_usize).prop_map(Op::Lose),
        2 => (0..8_usize).prop_map(Op::Double),
        2 => any::<u64>().prop_map(Op::Shuffle),
        2 => (0..5_usize).prop_map(Op::Relist),
        1 => Just(Op::RelistRegistry),
        1 => prop_oneof![3 => 0..40_usize, 1 => Just(usize::MAX)].prop_map(Op::Restore),
        8 => (fate(), 1..4_usize).prop_map(|(f, n)| Op::Perform(f, n)),
        3 => (1..4_usize).prop_map(Op::Overtake),
        6 => Just(Op::Run),
        3 => (1..90_i64).prop_map(Op::Wait),
        1 => (300..700_i64).prop_map(Op::Wait),
        1 => any::<bool>().prop_map(Op::Heard),
        1 => (0..8_usize).prop_map(Op::Restart),
        1 => Just(Op::Disconnect),
        1 => Just(Op::Connect),
        1 => Just(Op::Settle),
    ]
}

/// A sequence of steps.
pub fn sequence(len_max: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![4 => local(), 3 => remote(), 5 => faults()];
    vec(op, 1..len_max)
}

/// A sequence without faults, strangers and hands: everything is seen and done at once.
pub fn calm_sequence(len_max: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        2 => (key(), 0..3_u8, SliceShape::any()).prop_map(|(k, n, s)| Op::Slice(k, n, s)),
        1 => (key(), ExportShape::any()).prop_map(|(k, s)| Op::Export(k, s)),
        1 => (key(), ServiceShape::any()).prop_map(|(k, s)| Op::Service(k, s)),
        2 => remote(),
    ];
    vec(op, 1..len_max)
}
