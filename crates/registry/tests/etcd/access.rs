//! Users, certificates, and who may write what.
