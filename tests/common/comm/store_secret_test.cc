// A rendezvous store with a secret: strangers are refused, named and counted, and members go on.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/comm/process_group.h"
#include "common/comm/store_connection.h"
#include "common/comm/store_wire.h"
#include "common/host/file_descriptor.h"
#include "common/security/secret.h"
#include "common/telemetry/log.h"
#include "common/telemetry/refusals.h"
#include "tests/support/status_matchers.h"

namespace tandem::comm {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kTimeout = absl::Seconds(20);

int64_t NumRefused() { return telemetry::NumRefusals(telemetry::RefusedAt::kRendezvous); }

Rendezvous At(const StoreServer& server, std::string secret) {
  return {"127.0.0.1", server.port(), "group", std::move(secret)};
}

absl::StatusOr<std::unique_ptr<StoreClient>> Connect(const StoreServer& server,
                                                     const std::string& secret) {
  return StoreClient::Connect(At(server, secret), kTimeout);
}

// A socket of its own, for what no client of ours sends.
class RawPeer {
 public:
  explicit RawPeer(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    timeval limit{};
    limit.tv_sec = 20;
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    std::string hello;
    AppendInteger(hello, StoreQuery::kValidate);
    AppendInteger(hello, kStoreMagic);
    Send(hello);
  }
  void Send(const std::string& bytes) { send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  std::string Read(size_t size) {
    std::string out(size, '\0');
    const ssize_t n = recv(fd_.get(), out.data(), size, MSG_WAITALL);
    out.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return out;
  }
  // Whether the store closes the connection, and has said nothing but that it refuses.
  bool IsRefused() {
    const std::string said = Read(kStoreProofBytes + 1);
    return said.empty() || said == kStoreRefusal;
  }

  std::string Challenge(const std::string& nonce) {
    std::string query;
    AppendInteger(query, StoreQuery::kChallenge);
    Send(query + nonce);
    return Read(kStoreProofBytes);
  }
  void Prove(const std::string& proof) {
    std::string query;
    AppendInteger(query, StoreQuery::kProve);
    Send(query + proof);
  }

 private:
  host::FileDescriptor fd_;
};

TEST(StoreSecret, MembersMeetAndStrangersAreRefusedMeanwhile) {
  const std::string secret = security::DrawSecret();
  const auto server = *StoreServer::Start({.secret = secret});
  const auto member = Connect(*server, secret);
  ASSERT_OK(member.status());
  ASSERT_OK((*member)->Set("key", "value"));
  const int64_t before = NumRefused();
  EXPECT_THAT(Connect(*server, security::DrawSecret()).status(),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("secret")));
  EXPECT_THAT(Connect(*server, "").status(),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("TANDEM_GROUP_SECRET")));
  EXPECT_EQ(NumRefused(), before + 2);
  const auto other = Connect(*server, secret);
  ASSERT_OK(other.status());
  EXPECT_THAT((*other)->Get("key", kTimeout), IsOkAndHolds("value"));
  EXPECT_THAT((*member)->Get("key", kTimeout), IsOkAndHolds("value"));
}

TEST(StoreSecret, NothingIsAnsweredBeforeTheProof) {
  const auto server = *StoreServer::Start({.secret = security::DrawSecret()});
  std::string get;
  AppendInteger(get, StoreQuery::kGet);
  AppendString(get, "/group/key");
  std::string set;
  AppendInteger(set, StoreQuery::kSet);
  AppendString(set, "/group/go");
  AppendString(set, "go");
  std::string ping;
  AppendInteger(ping, StoreQuery::kPing);
  AppendInteger<uint32_t>(ping, 42);
  for (const std::string& query :
       {get, set, ping, std::string(100000, 'x'), std::string(1, '\xff')}) {
    RawPeer stranger(server->port());
    stranger.Send(query);
    EXPECT_TRUE(stranger.IsRefused());
  }
}

TEST(StoreSecret, AProofThatWasSeenIsOfNoUse) {
  const std::string secret = security::DrawSecret();
  const auto server = *StoreServer::Start({.secret = secret});
  const std::string nonce = security::DrawSecret();
  RawPeer member(server->port());
  const std::string its = member.Challenge(nonce);
  const std::string proof = security::Hmac(secret, {kStoreClient, nonce, its});
  member.Prove(proof);
  EXPECT_EQ(member.Read(kStoreProofBytes), security::Hmac(secret, {kStoreServer, nonce, its}));

  RawPeer replays(server->port());
  EXPECT_NE(replays.Challenge(nonce), its);
  replays.Prove(proof);
  EXPECT_TRUE(replays.IsRefused());
  // Nor is the store's own proof, sent back, nor a proof without a challenge.
  RawPeer reflects(server->port());
  const std::string again = reflects.Challenge(nonce);
  reflects.Prove(security::Hmac(secret, {kStoreServer, nonce, again}));
  EXPECT_TRUE(reflects.IsRefused());
  RawPeer hasty(server->port());
  hasty.Prove(security::Hmac(secret, {kStoreClient, "", ""}));
  EXPECT_TRUE(hasty.IsRefused());
}

TEST(StoreSecret, ThatOfAnEarlierUpdateIsRefusedAndItsConnectionsClosed) {
  const std::string first = security::DrawSecret(), second = security::DrawSecret();
  const auto server = *StoreServer::Start({.secret = first});
  const auto member = Connect(*server, first);
  ASSERT_OK(member.status());
  ASSERT_OK((*member)->Set("key", "value"));

  server->SetSecret(second);

  const auto next = Connect(*server, second);
  ASSERT_OK(next.status());
  // What was said under the last one is gone with it.
  EXPECT_THAT((*next)->Get("key", absl::Milliseconds(50)).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("key")));
  EXPECT_THAT(Connect(*server, first).status(),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("has ended")));
  EXPECT_THAT((*member)->Get("key", kTimeout).status(),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
}

TEST(StoreSecret, AStoreThatDoesNotKnowTheSecretIsNotTrusted) {
  // Whoever serves on the address may let everybody in, but cannot prove that he is the group's.
  host::FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  std::thread impostor([&] {
    const host::FileDescriptor peer(accept(listener.get(), nullptr, nullptr));
    std::string bytes(5 + 1 + kStoreProofBytes, '\0');
    recv(peer.get(), bytes.data(), bytes.size(), MSG_WAITALL);
    const std::string nonce(kStoreProofBytes, 'n');
    send(peer.get(), nonce.data(), nonce.size(), MSG_NOSIGNAL);
    bytes.resize(1 + kStoreProofBytes);
    recv(peer.get(), bytes.data(), bytes.size(), MSG_WAITALL);
    send(peer.get(), nonce.data(), nonce.size(), MSG_NOSIGNAL);
    recv(peer.get(), bytes.data(), 1, 0);
  });
  EXPECT_THAT(StoreClient::Connect(
                  {"127.0.0.1", ntohs(address.sin_port), "group", security::DrawSecret()}, kTimeout)
                  .status(),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("another group's")));
  impostor.join();
}

TEST(StoreSecret, SilentStrangersAreLeftAndDoNotKeepMembersOut) {
  const std::string secret = security::DrawSecret();
  const auto server = *StoreServer::Start({.secret = secret});
  const int64_t before = NumRefused();
  std::vector<std::unique_ptr<RawPeer>> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(std::make_unique<RawPeer>(server->port()));
  const auto member = Connect(*server, secret);
  ASSERT_OK(member.status());
  ASSERT_OK((*member)->Set("key", "value"));
  EXPECT_TRUE(silent.front()->IsRefused());
  EXPECT_TRUE(silent.back()->IsRefused());
  EXPECT_EQ(NumRefused(), before + 200);
  EXPECT_THAT((*member)->Get("key", kTimeout), IsOkAndHolds("value"));
}

TEST(StoreSecret, TheLogNamesAStrangerAndNoSecret) {
  static auto* lines = new std::string;
  static auto* mu = new absl::Mutex;
  const std::string secret = "the-secret-of-the-group-0123456789";
  const auto server = *StoreServer::Start({.secret = secret});
  absl::SleepFor(absl::Milliseconds(1100));  // one line a second
  telemetry::SetLogSink([](absl::string_view line) {
    absl::MutexLock lock(mu);
    absl::StrAppend(lines, line, "\n");
  });
  const absl::Status refused = Connect(*server, "another-secret-0123456789").status();
  telemetry::SetLogSink(nullptr);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(Not(HasSubstr(secret)), Not(HasSubstr("another-secret"))));
  absl::MutexLock lock(mu);
  EXPECT_THAT(*lines,
              AllOf(HasSubstr("unauthenticated connection refused"), HasSubstr("peer=127.0.0.1:"),
                    HasSubstr("rendezvous"), Not(HasSubstr(secret))));
}

}  // namespace
}  // namespace tandem::comm
