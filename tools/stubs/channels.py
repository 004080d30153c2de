"""Channels and ports with the programs' security settings: mutual TLS if TANDEM_TLS_CERT, _KEY and _CA
are set ({role} in a path stands for the caller's role), a token from TANDEM_TOKEN, otherwise plaintext.

    from tandem.channels import open_channel
"""

import os
import pathlib

import grpc

# tools/certificates writes this name into every certificate, because gRPC for Python checks a host
# name, not the role.
NAME = "tandem"


def _files(role):
    """Key, certificate and authority; None without TLS."""
    paths = [os.environ.get(f"TANDEM_TLS_{part}", "") for part in ("KEY", "CERT", "CA")]
    if not any(paths):
        return None
    return [pathlib.Path(path.replace("{role}", role)).read_bytes() for path in paths]


def open_channel(endpoint, role="driver"):
    files = _files(role)
    if files is None:
        return grpc.insecure_channel(endpoint)
    key, certificate, authority = files
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    if token := os.environ.get("TANDEM_TOKEN"):
        credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(token))
    return grpc.secure_channel(endpoint, credentials, [("grpc.ssl_target_name_override", NAME)])


def add_port(server, address, role):
    """Adds a port to `server` and returns it; with TLS it requires client certificates."""
    files = _files(role)
    if files is None:
        return server.add_insecure_port(address)
    key, certificate, authority = files
    return server.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)], authority,
                                                                       require_client_auth=True))
