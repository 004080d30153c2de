#include "common/comm/tls_session.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/comm/link_mesh.h"
#include "common/security/secret.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

constexpr char kIdentity[] = "tandem data plane";
// Records of about so many bytes are made before the socket is asked to take them: a system call
// for each record of 16 KiB costs a tenth of the throughput. As much is read at a time.
constexpr int64_t kMostHeld = 256 << 10;
// TLS_AES_128_GCM_SHA256: of an external key, it says no more than that the hash is SHA-256.
constexpr unsigned char kAes128GcmSha256[] = {0x13, 0x01};

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "OpenSSL: %s failed\n", what);
  std::abort();
}

void Require(bool done, const char* what) {
  if (!done) Fail(what);
}

}  // namespace

// The functions that OpenSSL calls. Its own socket BIO would raise SIGPIPE, and write record by
// record.
struct TlsCallbacks {
  static TlsSession* Of(BIO* bio) { return static_cast<TlsSession*>(BIO_get_data(bio)); }
  static TlsSession* Of(SSL* ssl) { return static_cast<TlsSession*>(SSL_get_app_data(ssl)); }

  static int Write(BIO* bio, const char* data, int size) {
    Of(bio)->held_.append(data, static_cast<size_t>(size));
    return size;
  }

  static int Read(BIO* bio, char* data, int size) {
    TlsSession& session = *Of(bio);
    BIO_clear_retry_flags(bio);
    while (true) {
      const ssize_t n = recv(session.fd_, data, static_cast<size_t>(size), 0);
      if (n > 0) return static_cast<int>(n);
      if (n == 0) {
        session.ended_ = true;
        return 0;
      }
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        BIO_set_retry_read(bio);
      } else {
        session.socket_error_ = errno;
      }
      return -1;
    }
  }

  static long Control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_FLUSH) return 1;
    return command == BIO_CTRL_EOF && Of(bio)->ended_ ? 1 : 0;
  }

  static BIO_METHOD* Method() {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "link");
      Require(made != nullptr && BIO_meth_set_write(made, &Write) == 1 &&
                  BIO_meth_set_read(made, &Read) == 1 && BIO_meth_set_ctrl(made, &Control) == 1,
              "BIO_meth_new");
      return made;
    }();
    return method;
  }

  // The key as the session that it stands for in OpenSSL's interface.
  static SSL_SESSION* KeySession(SSL* ssl) {
    const std::string& key = Of(ssl)->options_.key;
    SSL_SESSION* session = SSL_SESSION_new();
    Require(
        session != nullptr &&
            SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()),
                                        key.size()) == 1 &&
            SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kAes128GcmSha256)) == 1 &&
            SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1 &&
            SSL_SESSION_set1_id_context(session, reinterpret_cast<const unsigned char*>(kIdentity),
                                        sizeof(kIdentity) - 1) == 1,
        "SSL_SESSION_new");
    return session;
  }

  static int UseKey(SSL* ssl, const EVP_MD*, const unsigned char** identity, size_t* size,
                    SSL_SESSION** session) {
    *session = KeySession(ssl);
    *identity = reinterpret_cast<const unsigned char*>(kIdentity);
    *size = sizeof(kIdentity) - 1;
    return 1;
  }

  static int FindKey(SSL* ssl, const unsigned char* identity, size_t size, SSL_SESSION** session) {
    const absl::string_view named(reinterpret_cast<const char*>(identity), size);
    *session = named == kIdentity ? KeySession(ssl) : nullptr;
    return 1;
  }

  static SSL_CTX* Context() {
    static SSL_CTX* const context = [] {
      SSL_CTX* made = SSL_CTX_new(TLS_method());
      Require(made != nullptr && SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION) == 1 &&
                  SSL_CTX_set_max_proto_version(made, TLS1_3_VERSION) == 1 &&
                  SSL_CTX_set_ciphersuites(
                      made, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256") == 1 &&
                  SSL_CTX_set_num_tickets(made, 0) == 1 &&
                  // OpenSSL refuses a key's session without a context if the server verifies its
                  // peer.
                  SSL_CTX_set_session_id_context(made,
                                                 reinterpret_cast<const unsigned char*>(kIdentity),
                                                 sizeof(kIdentity) - 1) == 1,
              "SSL_CTX_new");
      SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
      // Nothing is trusted: a peer that would rather show a certificate is refused.
      SSL_CTX_set_verify(made, SSL_VERIFY_PEER, nullptr);
      SSL_CTX_set_psk_use_session_callback(made, &UseKey);
      SSL_CTX_set_psk_find_session_callback(made, &FindKey);
      SSL_CTX_set_mode(made, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
      SSL_CTX_set_read_ahead(made, 1);
      SSL_CTX_set_default_read_buffer_len(made, kMostHeld);
      return made;
    }();
    return context;
  }
};

void TlsSession::FreeSsl::operator()(ssl_st* ssl) const { SSL_free(ssl); }

TlsSession::~TlsSession() = default;

absl::StatusOr<std::unique_ptr<TlsSession>> TlsSession::Handshake(
    const host::FileDescriptor& socket, Options options, absl::Time deadline,
    const Cancelled& cancelled) {
  if (options.key.size() != security::kSecretBytes) {
    return absl::InvalidArgumentError(absl::StrCat(options.what, ": expected a key of ",
                                                   security::kSecretBytes, " bytes, found ",
                                                   options.key.size()));
  }
  auto session = absl::WrapUnique(new TlsSession(socket.get(), std::move(options)));
  RETURN_IF_ERROR(session->Shake(socket, deadline, cancelled));
  return session;
}

absl::Status TlsSession::Shake(const host::FileDescriptor& socket, absl::Time deadline,
                               const Cancelled& cancelled) {
  ssl_.reset(SSL_new(TlsCallbacks::Context()));
  BIO* const bio = BIO_new(TlsCallbacks::Method());
  Require(ssl_ != nullptr && bio != nullptr, "SSL_new");
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  if (options_.is_server) {
    SSL_set_accept_state(ssl_.get());
  } else {
    SSL_set_connect_state(ssl_.get());
  }
  while (true) {
    // OpenSSL's error queue is the thread's: an older entry would be taken for this call's.
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_.get());
    absl::Status error = result == 1 ? absl::OkStatus() : ErrorOf(result);
    // Sends even after a failure: what is held may be the alert that tells the peer why.
    absl::Status unsent;
    while (!Flush(unsent) && unsent.ok()) {
      RETURN_IF_ERROR(AwaitSocket(socket, POLLOUT, deadline, cancelled, options_.what));
    }
    if (absl::IsDataLoss(error)) {
      return absl::PermissionDeniedError(
          absl::StrCat(options_.what, ": it does not prove the group's secret (", error.message(),
                       "); start all ranks with the same TANDEM_GROUP_SECRET"));
    }
    if (error.ok()) error = unsent;
    RETURN_IF_ERROR(error) << options_.what;
    if (result == 1) break;
    RETURN_IF_ERROR(AwaitSocket(socket, POLLIN, deadline, cancelled, options_.what));
  }
  // OpenSSL reports a handshake by a pre-shared key as a resumed session.
  if (SSL_session_reused(ssl_.get()) == 1) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(options_.what, ": it does not prove the group's secret"));
}

absl::Status TlsSession::ErrorOf(int result) {
  const int kind = SSL_get_error(ssl_.get(), result);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return absl::OkStatus();
  const unsigned long code = ERR_peek_last_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  if (socket_error_ != 0) return absl::UnavailableError(std::strerror(socket_error_));
  if (ended_ || kind == SSL_ERROR_ZERO_RETURN) {
    return absl::UnavailableError("the peer closed the connection");
  }
  return absl::DataLossError(absl::StrCat("TLS: ", reason == nullptr ? "unknown error" : reason));
}

Moved TlsSession::Write(const void* data, int64_t size) {
  Moved moved;
  if (!Flush(moved.error)) return moved;
  while (moved.bytes < size && static_cast<int64_t>(held_.size()) < kMostHeld) {
    if (under_key_ >= options_.rekey_bytes) {
      Require(SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1, "SSL_key_update");
      under_key_ = 0;
      ++num_key_changes_;
    }
    const int64_t some =
        std::min({size - moved.bytes, kMostHeld, options_.rekey_bytes - under_key_});
    ERR_clear_error();
    const int n = SSL_write(ssl_.get(), static_cast<const std::byte*>(data) + moved.bytes,
                            static_cast<int>(some));
    if (n <= 0) {
      moved.error = ErrorOf(n);
      return moved;
    }
    moved.bytes += n;
    under_key_ += n;
  }
  Flush(moved.error);
  return moved;
}

bool TlsSession::Flush(absl::Status& error) {
  while (sent_ < held_.size()) {
    const ssize_t n = send(fd_, held_.data() + sent_, held_.size() - sent_, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        error = absl::UnavailableError(std::strerror(errno));
      }
      return false;
    }
    sent_ += static_cast<size_t>(n);
  }
  held_.clear();
  sent_ = 0;
  return true;
}

Moved TlsSession::Read(void* data, int64_t size) {
  Moved moved;
  ERR_clear_error();
  const int n =
      SSL_read(ssl_.get(), data, static_cast<int>(std::min<int64_t>(size, int64_t{1} << 30)));
  if (n > 0) {
    moved.bytes = n;
  } else {
    moved.error = ErrorOf(n);
  }
  return moved;
}

std::string TlsSession::cipher() const { return SSL_get_cipher_name(ssl_.get()); }

}  // namespace tandem::comm
