// What is particular to groups of messages over TCP or the sockets of a host.
#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/comm/store_connection.h"
#include "common/status/status_macros.h"
#include "tests/common/comm/local_ranks.h"
#include "tests/support/status_matchers.h"

namespace tandem::comm {
namespace {

using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

absl::Status Expect(bool condition, const std::string& what) {
  return condition ? absl::OkStatus() : absl::InternalError(what);
}

class SocketGroup : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Families, SocketGroup,
                         ::testing::Values(kSocket, kLocalSocket, kTlsSocket), BackendName);

TEST_P(SocketGroup, LargeMessagesCrossWithoutADeadlock) {
  constexpr int64_t kBytes = 30 << 20;  // more than the sockets hold
  const auto results = RunRanks(3, GetParam(), [](ProcessGroup& group) -> absl::Status {
    std::vector<std::unique_ptr<Work>> works;
    std::vector<at::Tensor> arrived(3);
    const at::Tensor mine = at::full({kBytes}, group.rank() + 1, at::kByte);
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == group.rank()) continue;
      ASSIGN_OR_RETURN(auto send, group.Send(mine, peer, "piece"));
      arrived[peer] = at::zeros({kBytes}, at::kByte);
      ASSIGN_OR_RETURN(auto receive, group.Receive(arrived[peer], peer, "piece"));
      works.push_back(std::move(send));
      works.push_back(std::move(receive));
    }
    for (auto& work : works) RETURN_IF_ERROR(work->Wait());
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == group.rank()) continue;
      RETURN_IF_ERROR(
          Expect(at::equal(arrived[peer], at::full({kBytes}, peer + 1, at::kByte)), "wrong bytes"));
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_P(SocketGroup, AMessageOfAnotherSizeIsAnErrorThatNamesBothAndWritesNothing) {
  at::Tensor four = at::full({4}, 7, at::kByte);
  const auto results = RunRanks(2, GetParam(), [&](ProcessGroup& group) -> absl::Status {
    auto work = group.rank() == 0 ? group.Send(at::zeros({5}, at::kByte), 1, "five")
                                  : group.Receive(four, 0, "four");
    RETURN_IF_ERROR(work.status());
    return (*work)->Wait();
  });
  EXPECT_THAT(results[1],
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("'four' of 4 bytes"), HasSubstr("'five' of 5 bytes"))));
  EXPECT_TRUE(at::equal(four, at::full({4}, 7, at::kByte)));
}

TEST_P(SocketGroup, EmptyMessagesTravelToo) {
  const auto results = RunRanks(2, GetParam(), [](ProcessGroup& group) -> absl::Status {
    at::Tensor nothing = at::zeros({0}, at::kByte);
    auto work =
        group.rank() == 0 ? group.Send(nothing, 1, "none") : group.Receive(nothing, 0, "none");
    RETURN_IF_ERROR(work.status());
    return (*work)->Wait();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_P(SocketGroup, WhatARankSentBeforeItLeftArrives) {
  const auto results = RunRanks(2, GetParam(), [](ProcessGroup& group) -> absl::Status {
    at::Tensor bytes = at::full({1 << 20}, group.rank(), at::kByte);
    auto work = group.rank() == 1 ? group.Send(bytes, 0, "last") : group.Receive(bytes, 1, "last");
    RETURN_IF_ERROR(work.status());
    RETURN_IF_ERROR((*work)->Wait());
    return Expect(bytes[999].item<int>() == 1, "wrong bytes");
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_P(SocketGroup, HasNoCollectives) {
  const auto results = RunRanks(
      2, GetParam(), [](ProcessGroup& group) -> absl::Status { return group.Barrier("all"); });
  EXPECT_THAT(results, Each(StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("barrier"))));
}

// Connects to the address that rank 0 left in the store, without having read the secret there.
int ConnectAsStranger(int port) {
  auto store = StoreConnection::Open(LocalOptions(port, 0, 2).rendezvous,
                                     absl::Now() + absl::Seconds(10), nullptr);
  EXPECT_OK(store);
  EXPECT_OK((*store)->WaitFor("links/0", absl::Now() + absl::Seconds(10), nullptr));
  const auto entry = (*store)->Read("links/0", absl::Now() + absl::Seconds(10), nullptr);
  EXPECT_OK(entry);
  const std::vector<std::string> parts = absl::StrSplit(*entry, ' ');
  const std::string address = absl::HexStringToBytes(parts[0]);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(address.data()),
                    static_cast<socklen_t>(address.size())),
            0);
  return fd;
}

TEST(TcpGroup, AStrangerIsRefusedAndNamedAndKeepsNobodyOut) {
  ASSERT_OK_AND_ASSIGN(auto store, StoreServer::Start());
  absl::StatusOr<std::unique_ptr<ProcessGroup>> zero = absl::UnknownError("not made");
  std::thread rank_zero([&] { zero = CreateSocketGroup(LocalOptions(store->port(), 0, 2)); });
  const int silent = ConnectAsStranger(store->port());
  const int liar = ConnectAsStranger(store->port());
  const std::string greeting(36, '\x01');
  ASSERT_EQ(send(liar, greeting.data(), greeting.size(), MSG_NOSIGNAL), 36);
  char byte;
  EXPECT_EQ(recv(liar, &byte, 1, 0), 0);  // it was closed
  auto one = CreateSocketGroup(LocalOptions(store->port(), 1, 2));
  rank_zero.join();
  EXPECT_OK(zero);
  EXPECT_OK(one);
  close(silent);
  close(liar);
}

TEST(TcpGroup, ARendezvousThatFailsTellsOfStrangers) {
  ASSERT_OK_AND_ASSIGN(auto store, StoreServer::Start());
  absl::Status status;
  std::thread rank_zero([&] {
    status = CreateSocketGroup(LocalOptions(store->port(), 0, 2, absl::Seconds(2))).status();
  });
  const int liar = ConnectAsStranger(store->port());
  const std::string greeting(36, '\x01');
  ASSERT_EQ(send(liar, greeting.data(), greeting.size(), MSG_NOSIGNAL), 36);
  // It resets the connection, maybe before it was heard: it is named all the same.
  const linger at_once{1, 0};
  setsockopt(liar, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(liar);
  rank_zero.join();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("refused 1 unknown connections, the last from 127.0.0.1:")));
}

}  // namespace
}  // namespace tandem::comm
