//! Development only: real etcd and Kubernetes clusters on this machine.
