// TLS over one connection: who gets in, and how long its keys last.
#include "common/comm/tls_session.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"

namespace tandem::comm {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

using SessionOr = absl::StatusOr<std::unique_ptr<TlsSession>>;

// A connection; its second end may block.
std::array<host::FileDescriptor, 2> Connection(bool blocks = false) {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (blocks ? 0 : SOCK_NONBLOCK), 0, ends),
            0);
  EXPECT_EQ(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
  return {host::FileDescriptor(ends[0]), host::FileDescriptor(ends[1])};
}

SessionOr Shake(const host::FileDescriptor& socket, bool is_server, const std::string& key,
                int64_t rekey_bytes = int64_t{1} << 40) {
  TlsSession::Options options;
  options.is_server = is_server;
  options.key = key;
  options.what = "TLS with rank 1";
  options.rekey_bytes = rekey_bytes;
  return TlsSession::Handshake(socket, options, absl::Now() + absl::Seconds(20), nullptr);
}

const std::string kKey(32, 'k');

TEST(TlsSession, WhoKnowsAnotherKeyIsRefused) {
  const auto ends = Connection();
  SessionOr client = absl::UnknownError("not made");
  std::thread other([&] { client = Shake(ends[1], false, std::string(32, 'x')); });
  EXPECT_THAT(Shake(ends[0], true, kKey),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("TLS with rank 1: it does not prove")));
  other.join();
  EXPECT_THAT(client, StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("does not prove")));
}

struct Free {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
};

// A program that speaks TLS, trusts everybody, has a certificate, and does not know the key.
void SpeakAsStranger(const host::FileDescriptor& socket, bool is_server) {
  const std::unique_ptr<EVP_PKEY, Free> key(EVP_EC_gen("P-256"));
  const std::unique_ptr<X509, Free> certificate(X509_new());
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  const std::unique_ptr<SSL_CTX, Free> context(SSL_CTX_new(TLS_method()));
  ASSERT_EQ(SSL_CTX_use_certificate(context.get(), certificate.get()), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey(context.get(), key.get()), 1);
  const std::unique_ptr<SSL, Free> ssl(SSL_new(context.get()));
  SSL_set_fd(ssl.get(), socket.get());
  EXPECT_NE(is_server ? SSL_accept(ssl.get()) : SSL_connect(ssl.get()), 1);
}

TEST(TlsSession, AServerThatShowsACertificateInsteadIsRefused) {
  const auto ends = Connection(/*blocks=*/true);
  std::thread stranger([&] { SpeakAsStranger(ends[1], /*is_server=*/true); });
  EXPECT_THAT(Shake(ends[0], /*is_server=*/false, kKey),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("does not prove")));
  shutdown(ends[0].get(), SHUT_RDWR);
  stranger.join();
}

TEST(TlsSession, AClientWithoutTheKeyIsRefused) {
  const auto ends = Connection(/*blocks=*/true);
  std::thread stranger([&] { SpeakAsStranger(ends[1], /*is_server=*/false); });
  EXPECT_THAT(Shake(ends[0], /*is_server=*/true, kKey),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("does not prove")));
  shutdown(ends[0].get(), SHUT_RDWR);
  stranger.join();
}

TEST(TlsSession, APeerThatSaysNothingIsWaitedForUntilTheDeadline) {
  const auto ends = Connection();
  TlsSession::Options options;
  options.key = kKey;
  options.what = "TLS with rank 1";
  EXPECT_THAT(
      TlsSession::Handshake(ends[0], options, absl::Now() + absl::Milliseconds(50), nullptr),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("TLS with rank 1")));
}

TEST(TlsSession, KeysChangeBeforeTheyWearOutAndBytesStayInOrder) {
  const auto ends = Connection();
  constexpr int64_t kBytes = 2 << 20;
  std::string received(kBytes, '\0');
  std::thread reader([&] {
    SessionOr session = Shake(ends[1], false, kKey);
    ASSERT_OK(session);
    for (int64_t at = 0; at < kBytes;) {
      const Moved moved = (*session)->Read(received.data() + at, kBytes - at);
      ASSERT_OK(moved.error);
      at += moved.bytes;
      pollfd entry = {ends[1].get(), POLLIN, 0};
      if (moved.bytes == 0) poll(&entry, 1, 20'000);
    }
  });
  std::string sent(kBytes, '\0');
  for (int64_t i = 0; i < kBytes; ++i) sent[i] = static_cast<char>(i * 31 % 251);
  SessionOr session = Shake(ends[0], true, kKey, /*rekey_bytes=*/100'000);
  ASSERT_OK(session);
  for (int64_t at = 0; at < kBytes;) {
    const Moved moved = (*session)->Write(sent.data() + at, kBytes - at);
    ASSERT_OK(moved.error);
    at += moved.bytes;
    pollfd entry = {ends[0].get(), POLLOUT, 0};
    if (moved.bytes == 0) poll(&entry, 1, 20'000);
  }
  absl::Status error;
  while (!(*session)->Flush(error)) {
    pollfd entry = {ends[0].get(), POLLOUT, 0};
    poll(&entry, 1, 20'000);
    ASSERT_OK(error);
  }
  reader.join();
  EXPECT_EQ(received, sent);
  EXPECT_GE((*session)->num_key_changes(), 10);
}

}  // namespace
}  // namespace tandem::comm
