#include <ATen/core/Tensor.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "absl/strings/str_cat.h"
#include "common/comm/process_group.h"
#include "common/comm/store_connection.h"
#include "tests/support/status_matchers.h"

namespace tandem::comm {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

Rendezvous At(int port, std::string prefix = "run") {
  Rendezvous rendezvous;
  rendezvous.port = port;
  rendezvous.prefix = std::move(prefix);
  return rendezvous;
}

TEST(Store, AWaitEndsWhenAnotherClientSetsTheKey) {
  ASSERT_OK_AND_ASSIGN(auto server, StoreServer::Start());
  ASSERT_OK_AND_ASSIGN(auto waiter, StoreClient::Connect(At(server->port()), absl::Seconds(10)));
  ASSERT_OK_AND_ASSIGN(auto setter, StoreClient::Connect(At(server->port()), absl::Seconds(10)));
  std::thread thread([&] {
    EXPECT_THAT(waiter->Get("go/1", absl::Seconds(10)), IsOkAndHolds(std::string("yes")));
  });
  EXPECT_OK(setter->Set("go/1", "yes"));
  thread.join();
}

TEST(Store, PrefixesSeparateKeys) {
  ASSERT_OK_AND_ASSIGN(auto server, StoreServer::Start());
  ASSERT_OK_AND_ASSIGN(auto one,
                       StoreClient::Connect(At(server->port(), "one"), absl::Seconds(10)));
  ASSERT_OK_AND_ASSIGN(auto two,
                       StoreClient::Connect(At(server->port(), "two"), absl::Seconds(10)));
  ASSERT_OK(one->Set("key", "1"));
  EXPECT_THAT(two->Get("key", absl::Milliseconds(150)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("two/key")));
  EXPECT_THAT(one->Get("key", absl::Seconds(10)), IsOkAndHolds(std::string("1")));
}

TEST(Store, AWaitCanBeCancelledAndTheClientUsedAgain) {
  ASSERT_OK_AND_ASSIGN(auto server, StoreServer::Start());
  ASSERT_OK_AND_ASSIGN(auto client, StoreClient::Connect(At(server->port()), absl::Seconds(10)));
  absl::Notification cancel;
  std::thread canceller([&cancel] { cancel.Notify(); });
  EXPECT_THAT(client->Get("go/1", absl::Seconds(30), &cancel),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("go/1")));
  canceller.join();
  ASSERT_OK(client->Set("go/2", ""));
  EXPECT_THAT(client->Get("go/2", absl::Seconds(10)), IsOkAndHolds(std::string()));
}

TEST(Store, AWaitThatIsCancelledBeforeItBeginsLeavesTheClientUsable) {
  ASSERT_OK_AND_ASSIGN(auto server, StoreServer::Start());
  ASSERT_OK_AND_ASSIGN(auto client, StoreClient::Connect(At(server->port()), absl::Seconds(10)));
  absl::Notification cancel;
  cancel.Notify();
  EXPECT_THAT(client->Get("go/1", absl::Seconds(30), &cancel),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("go/1")));
  ASSERT_OK(client->Set("go/2", "yes"));
  EXPECT_THAT(client->Get("go/2", absl::Seconds(10)), IsOkAndHolds(std::string("yes")));
}

TEST(Store, AWaitCanBeStoppedFromAnotherThreadAndTheClientUsedAgain) {
  ASSERT_OK_AND_ASSIGN(auto server, StoreServer::Start());
  ASSERT_OK_AND_ASSIGN(auto client, StoreClient::Connect(At(server->port()), absl::Seconds(10)));
  std::thread stopper([&client] { client->StopWaiting(); });
  EXPECT_THAT(client->Get("go/1", absl::InfiniteDuration()),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("go/1")));
  stopper.join();
  ASSERT_OK(client->Set("go/1", "late"));
  EXPECT_THAT(client->Get("go/1", absl::Seconds(10)), IsOkAndHolds(std::string("late")));
}

TEST(Store, AWaitThatWasGivenUpLeavesNoAnswerBehind) {
  ASSERT_OK_AND_ASSIGN(auto server, StoreServer::Start());
  ASSERT_OK_AND_ASSIGN(auto waiter, StoreClient::Connect(At(server->port()), absl::Seconds(10)));
  ASSERT_OK_AND_ASSIGN(auto setter, StoreClient::Connect(At(server->port()), absl::Seconds(10)));
  for (int i = 0; i < 200; ++i) {
    // Sometimes the key comes as its wait is given up.
    const std::string key = absl::StrCat("key/", i);
    std::thread thread([&] { EXPECT_OK(setter->Set(key, "x")); });
    const auto value = waiter->Get(key, absl::Microseconds(10 * (i % 20)));
    EXPECT_TRUE(value.ok() || absl::IsDeadlineExceeded(value.status())) << value.status();
    thread.join();
    EXPECT_THAT(waiter->Get(key, absl::Seconds(10)), IsOkAndHolds(std::string("x")));
  }
}

TEST(Store, AWaitEndsWhenTheServerGoes) {
  ASSERT_OK_AND_ASSIGN(auto server, StoreServer::Start());
  ASSERT_OK_AND_ASSIGN(auto client, StoreClient::Connect(At(server->port()), absl::Seconds(10)));
  std::thread thread([&] {
    EXPECT_THAT(client->Get("never", absl::Seconds(60)),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("never")));
  });
  server.reset();
  thread.join();
}

TEST(Store, AServerThatAcceptsAndStaysSilentIsGivenUpAtTheDeadline) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(fd, 4), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  EXPECT_THAT(StoreClient::Connect(At(ntohs(address.sin_port)), absl::Milliseconds(300)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("store 127.0.0.1"), HasSubstr("connecting"))));
  close(fd);
}

TEST(Store, GarbageEndsItsConnectionAndNoOther) {
  ASSERT_OK_AND_ASSIGN(auto server, StoreServer::Start());
  ASSERT_OK_AND_ASSIGN(auto client, StoreClient::Connect(At(server->port()), absl::Seconds(10)));
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(server->port());
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::string garbage(1000, '\xff');
  ASSERT_GT(send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
  char byte;
  EXPECT_LE(recv(fd, &byte, 1, 0), 0);  // closed, or reset
  close(fd);
  ASSERT_OK(client->Set("key", std::string(100000, 'x')));
  EXPECT_THAT(client->Get("key", absl::Seconds(10)), IsOkAndHolds(std::string(100000, 'x')));
}

TEST(Store, AConnectThatIsCancelledEnds) {
  absl::Notification cancel;
  cancel.Notify();
  EXPECT_THAT(StoreClient::Connect(At(1), absl::Seconds(60), &cancel),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("127.0.0.1:1")));
}

TEST(Store, OurClientsUseTheStoreThatTorchrunServes) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto theirs = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  ASSERT_OK_AND_ASSIGN(
      auto connection,
      StoreConnection::Open(At(theirs->getPort()), absl::Now() + absl::Seconds(20), nullptr));
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  ASSERT_OK(connection->Set("key", "value", deadline));
  EXPECT_OK(connection->WaitFor("key", deadline, nullptr));
  EXPECT_THAT(connection->WaitFor("late", absl::Now() + absl::Milliseconds(50), nullptr),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("late")));
  std::thread setter([&] { theirs->set("run/late", {'x'}); });
  EXPECT_OK(connection->WaitFor("late", deadline, nullptr));
  setter.join();
  EXPECT_THAT(connection->Check("other", deadline, nullptr), IsOkAndHolds(false));
  EXPECT_THAT(connection->Read("key", deadline, nullptr), IsOkAndHolds(std::string("value")));
  EXPECT_THAT(connection->Add("count", 3, deadline), IsOkAndHolds(int64_t{3}));
  EXPECT_THAT(connection->Add("count", 4, deadline), IsOkAndHolds(int64_t{7}));
}

TEST(Store, TheirClientsUseOurs) {
  ASSERT_OK_AND_ASSIGN(auto server, StoreServer::Start());
  c10d::TCPStoreOptions options;
  options.port = server->port();
  options.waitWorkers = false;
  const auto theirs = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  theirs->set("a", std::vector<uint8_t>{1, 2});
  EXPECT_TRUE(theirs->check({"a"}));
  EXPECT_FALSE(theirs->check({"b"}));
  EXPECT_EQ(theirs->add("n", 5), 5);
}

bool IsReached(const std::string& host, int port) {
  return StoreClient::Connect({host, port, "run"}, absl::Milliseconds(300)).ok();
}

TEST(Store, ListensAtTheAddressThatClientsAreToldAndNoOther) {
  ASSERT_OK_AND_ASSIGN(auto first, StoreServer::Start());
  EXPECT_TRUE(IsReached("127.0.0.1", first->port()));
  EXPECT_FALSE(IsReached("127.0.0.2", first->port()));
  // The same port at another address is free.
  ASSERT_OK_AND_ASSIGN(auto second,
                       StoreServer::Start({.host = "127.0.0.2", .port = first->port()}));
  EXPECT_EQ(second->port(), first->port());
  EXPECT_EQ(second->local_host(), "127.0.0.2");
  EXPECT_TRUE(IsReached("127.0.0.2", first->port()));
  EXPECT_FALSE(IsReached("127.0.0.3", first->port()));
  ASSERT_OK_AND_ASSIGN(auto named, StoreServer::Start({.host = "localhost"}));
  EXPECT_TRUE(IsReached("localhost", named->port()));
  EXPECT_FALSE(IsReached("127.0.0.2", named->port()));
}

TEST(Store, ListensEverywhereWhereItsAddressIsNotThisHosts) {
  // One that is reserved for documents, as a load balancer's would be.
  ASSERT_OK_AND_ASSIGN(auto server, StoreServer::Start({.host = "192.0.2.1"}));
  EXPECT_TRUE(IsReached(server->local_host(), server->port()));
  EXPECT_TRUE(IsReached("127.0.0.2", server->port()));
}

TEST(Store, AClientThatWasSentAwayConnectsAgain) {
  const std::string secret = "the secret of all the members";
  ASSERT_OK_AND_ASSIGN(auto server, StoreServer::Start({.secret = secret}));
  Rendezvous rendezvous = At(server->port());
  rendezvous.secret = secret;
  ASSERT_OK_AND_ASSIGN(auto client, StoreClient::Connect(rendezvous, absl::Seconds(10)));
  // Its connection is of the last secret, although this is the same.
  server->SetSecret(secret);
  ASSERT_OK_AND_ASSIGN(auto witness, StoreClient::Connect(rendezvous, absl::Seconds(10)));
  ASSERT_OK(client->Set("after", "yes"));
  EXPECT_THAT(witness->Get("after", absl::Seconds(10)), IsOkAndHolds(std::string("yes")));
  EXPECT_THAT(client->Get("after", absl::Seconds(10)), IsOkAndHolds(std::string("yes")));
}

TEST(Store, APortOutOfRangeIsRefused) {
  EXPECT_THAT(StoreServer::Start({.port = 70000}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("70000")));
  EXPECT_THAT(StoreClient::Connect(At(0), absl::Seconds(1)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rendezvous port")));
}

}  // namespace
}  // namespace tandem::comm
