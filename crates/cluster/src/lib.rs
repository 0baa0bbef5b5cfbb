//! One Kubernetes cluster as inputs and actions: a directory of manifests or an API server.
