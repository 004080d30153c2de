// The encryption of links between ranks: what somebody on the wire sees and can do, and what the
// ranks agree on.
#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/link_agreement.h"
#include "common/comm/link_facts.h"
#include "common/status/status_macros.h"
#include "tests/common/comm/local_ranks.h"
#include "tests/common/comm/wire_tap.h"
#include "tests/support/status_matchers.h"

namespace tandem::comm {
namespace {

using security::DataPlaneEncryption;
using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kBytes = 3 << 20;
constexpr char kPhrase[] = "the weights of the model, for whoever listens; ";

at::Tensor Phrases() {
  at::Tensor tensor = at::empty({kBytes}, at::kByte);
  auto* const bytes = static_cast<char*>(tensor.data_ptr());
  for (int64_t i = 0; i < kBytes; ++i) bytes[i] = kPhrase[i % (sizeof(kPhrase) - 1)];
  return tensor;
}

using Body = std::function<absl::Status(ProcessGroup&)>;

// Two ranks of "hosts" of their own; rank 1's options may be changed.
std::vector<absl::Status> RunPair(const std::function<int(int)>& port_of, const char* backend,
                                  const Body& body,
                                  const std::function<void(GroupOptions&)>& change = nullptr) {
  std::vector<absl::Status> results(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions options = LocalOptions(port_of(rank), rank, 2, absl::Seconds(20));
      options.rendezvous.secret = "the secret of the test's ranks";
      options.rendezvous.store_has_secret = false;
      options.data_plane.encryption = DataPlaneEncryption::kBetweenHosts;
      options.data_plane.source = "--data-plane-encryption auto, TLS on";
      options.place = absl::StrCat("host ", rank);
      if (rank == 1 && change != nullptr) change(options);
      const auto group = CreateGroupOf(backend, options);
      results[rank] = group.ok() ? body(**group) : group.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

std::vector<absl::Status> RunPair(const char* backend, const Body& body,
                                  const std::function<void(GroupOptions&)>& change = nullptr) {
  const auto store = StoreServer::Start();
  if (!store.ok()) return {store.status()};
  return RunPair([&](int) { return (*store)->port(); }, backend, body, change);
}

std::vector<absl::Status> RunPair(const WireTap& tap, const char* backend, const Body& body,
                                  const std::function<void(GroupOptions&)>& change = nullptr) {
  return RunPair([&](int rank) { return tap.port_of(rank); }, backend, body, change);
}

absl::Status SendPhrases(ProcessGroup& group) {
  at::Tensor tensor = group.rank() == 1 ? Phrases() : at::zeros({kBytes}, at::kByte);
  ASSIGN_OR_RETURN(auto work, group.rank() == 1 ? group.Send(tensor, 0, "weights")
                                                : group.Receive(tensor, 1, "weights"));
  RETURN_IF_ERROR(work->Wait());
  if (!at::equal(tensor, Phrases())) return absl::InternalError("wrong bytes");
  // Nobody leaves before the other one has all.
  at::Tensor end = at::zeros({1}, at::kByte);
  ASSIGN_OR_RETURN(auto last,
                   group.rank() == 0 ? group.Send(end, 1, "end") : group.Receive(end, 0, "end"));
  return last->Wait();
}

absl::Status BroadcastPhrases(ProcessGroup& group) {
  at::Tensor tensor = group.rank() == 1 ? Phrases() : at::zeros({kBytes}, at::kByte);
  ASSIGN_OR_RETURN(auto work, group.Broadcast(tensor, 1, "weights"));
  RETURN_IF_ERROR(work->Wait());
  if (!at::equal(tensor, Phrases())) return absl::InternalError("wrong bytes");
  return group.Barrier("end");
}

absl::Status Nothing(ProcessGroup&) { return absl::OkStatus(); }

void TurnOff(GroupOptions& options) {
  options.data_plane.encryption = DataPlaneEncryption::kNever;
  options.data_plane.source = "--data-plane-encryption never, TLS on";
}

TEST(DataPlane, APlaintextLinkShowsTensorsToWhoeverIsOnTheWire) {
  // Both never: rank 0 too.
  const WireTap tap({});
  std::vector<std::thread> threads;
  std::vector<absl::Status> results(2);
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto group = CreateGroupOf("socket", LocalOptions(tap.port_of(rank), rank, 2));
      results[rank] = group.ok() ? SendPhrases(**group) : group.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(results, Each(IsOk()));
  EXPECT_NE(tap.seen().find(kPhrase), std::string::npos);
}

TEST(DataPlane, MessagesBetweenHostsAreNotSeenOnTheWire) {
  const WireTap tap({});
  EXPECT_THAT(RunPair(tap, "messages", &SendPhrases), Each(IsOk()));
  const std::string seen = tap.seen();
  EXPECT_GT(seen.size(), static_cast<size_t>(kBytes));
  EXPECT_EQ(seen.find("weights"), std::string::npos);
}

TEST(DataPlane, CollectivesBetweenHostsAreNotSeenOnTheWire) {
  const WireTap tap({.lanes = {"/collectives", "/messages"}});
  EXPECT_THAT(RunPair(tap, "gloo", &BroadcastPhrases), Each(IsOk()));
  const std::string seen = tap.seen();
  EXPECT_GT(seen.size(), static_cast<size_t>(kBytes));
  EXPECT_EQ(seen.find("weights"), std::string::npos);
}

TEST(DataPlane, ABitThatChangesOnTheWireEndsTheTransferAndNamesThePeer) {
  const WireTap tap({.flip_at = 1 << 20});
  const auto results = RunPair(tap, "messages", &SendPhrases);
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kDataLoss,
                                   AllOf(HasSubstr("receive 'weights'"), HasSubstr("from rank 1"),
                                         HasSubstr("rank 1 is cut off"))));
  EXPECT_THAT(results[1], Not(IsOk()));
}

TEST(DataPlane, ABitThatChangesInACollectiveEndsItAndNamesThePeer) {
  const WireTap tap({.lanes = {"/collectives", "/messages"}, .flip_at = 1 << 20});
  const auto results = RunPair(tap, "gloo", &BroadcastPhrases);
  EXPECT_THAT(results[0],
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("broadcast 'weights'"), HasSubstr("rank 1 is cut off"))));
  EXPECT_THAT(results[1], Not(IsOk()));
}

TEST(DataPlane, WhoeverIsOnTheWireCannotMakeTwoHostsLookLikeOne) {
  const WireTap tap({.rewrite_place = [](const std::string& entry) {
    std::string changed = entry;
    const size_t at = changed.find("host 1");
    EXPECT_NE(at, std::string::npos);
    if (at != std::string::npos) changed.replace(at, 6, "host 0");
    return changed;
  }});
  // Rank 1 waits for one that has refused it.
  const auto results = RunPair(tap, "socket", &SendPhrases,
                               [](GroupOptions& options) { options.timeout = absl::Seconds(1); });
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kPermissionDenied,
                                   AllOf(HasSubstr("rank 1"), HasSubstr("not signed"))));
  EXPECT_EQ(tap.seen().find(kPhrase), std::string::npos);
}

TEST(DataPlane, ARankWithAnotherSecretIsRefused) {
  const auto results = RunPair("gloo", &Nothing, [](GroupOptions& options) {
    options.rendezvous.secret = "the secret of another group!!!";
  });
  EXPECT_THAT(results, Each(StatusIs(absl::StatusCode::kPermissionDenied,
                                     HasSubstr("the same TANDEM_GROUP_SECRET"))));
}

TEST(DataPlane, RanksThatAskForDifferentThingsAreToldSoByName) {
  for (const char* backend : {"gloo", "shared_memory", "messages", "local_socket", "socket"}) {
    SCOPED_TRACE(backend);
    EXPECT_THAT(
        RunPair(backend, &Nothing, &TurnOff),
        Each(StatusIs(
            absl::StatusCode::kFailedPrecondition,
            AllOf(HasSubstr("'between hosts' (--data-plane-encryption auto, TLS on) on rank 0"),
                  HasSubstr("'never' (--data-plane-encryption never, TLS on) on rank 1")))));
  }
}

TEST(DataPlane, WithoutASecretLinksBetweenHostsAreRefused) {
  const auto store = *StoreServer::Start();
  std::vector<std::thread> threads;
  std::vector<absl::Status> results(2);
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions options = LocalOptions(store->port(), rank, 2);
      options.data_plane.encryption = DataPlaneEncryption::kBetweenHosts;
      options.place = absl::StrCat("host ", rank);
      results[rank] = CreateGroupOf("gloo", options).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(results, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                     HasSubstr("TANDEM_GROUP_SECRET"))));
}

TEST(DataPlane, NcclBetweenHostsIsRefusedUnlessEveryRankAllowsIt) {
  EXPECT_THAT(
      RunPair("nccl", &Nothing,
              [](GroupOptions& options) { options.data_plane.allow_plaintext_nccl = true; }),
      Each(StatusIs(
          absl::StatusCode::kFailedPrecondition,
          AllOf(HasSubstr("--allow-plaintext-nccl"), HasSubstr("rank 0 does not allow that")))));
}

std::vector<LinkEntry> Entries(const std::vector<std::string>& hosts,
                               DataPlaneEncryption encryption, bool allow_plaintext_nccl) {
  std::vector<LinkEntry> entries;
  for (const std::string& host : hosts) {
    LinkEntry& entry = entries.emplace_back();
    entry.host = entry.place = host;
    entry.data_plane.encryption = encryption;
    entry.data_plane.allow_plaintext_nccl = allow_plaintext_nccl;
  }
  return entries;
}

TEST(PlanLinks, EncryptsThoseLinksThatLeaveTheHost) {
  ASSERT_OK_AND_ASSIGN(
      const LinkPlan plan,
      PlanLinks("g", 1, true, Entries({"a", "a", "b"}, DataPlaneEncryption::kBetweenHosts, false)));
  EXPECT_TRUE(plan.is_encrypted);
  EXPECT_FALSE(plan.within_place);
  EXPECT_EQ(plan.encrypted, (std::vector<bool>{false, false, true}));
}

TEST(PlanLinks, LeavesAHostsLinksAsTheyAreUnlessAlways) {
  ASSERT_OK_AND_ASSIGN(
      LinkPlan plan,
      PlanLinks("g", 0, false, Entries({"a", "a"}, DataPlaneEncryption::kBetweenHosts, false)));
  EXPECT_FALSE(plan.is_encrypted);
  EXPECT_TRUE(plan.within_place);
  EXPECT_OK(plan.nccl);
  ASSERT_OK_AND_ASSIGN(
      plan, PlanLinks("g", 0, true, Entries({"a", "a"}, DataPlaneEncryption::kAlways, false)));
  EXPECT_EQ(plan.encrypted, (std::vector<bool>{false, true}));
  EXPECT_OK(plan.nccl);
}

TEST(PlanLinks, JudgesNccl) {
  const auto judge = [](DataPlaneEncryption encryption, bool allow) {
    const auto plan = PlanLinks("g", 0, true, Entries({"a", "b"}, encryption, allow));
    return plan.ok() ? plan->nccl : plan.status();
  };
  EXPECT_OK(judge(DataPlaneEncryption::kNever, false));
  EXPECT_OK(judge(DataPlaneEncryption::kBetweenHosts, true));
  EXPECT_THAT(judge(DataPlaneEncryption::kBetweenHosts, false),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("ranks 0 and 1")));
  EXPECT_THAT(judge(DataPlaneEncryption::kAlways, false),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("ranks 0 and 1")));
}

absl::Status ExpectTransport(ProcessGroup& group, const std::string& expected) {
  const std::string found = TransportOf(group);
  if (found == expected) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("expected ", expected, ", found ", found));
}

TEST(DataPlane, GroupsSayHowTheirBytesTravel) {
  const auto one_host = [](GroupOptions& options) { options.place = "host 0"; };
  for (const char* backend : {"gloo", "shared_memory", "messages", "local_socket", "socket"}) {
    SCOPED_TRACE(backend);
    EXPECT_THAT(RunPair(backend, [](ProcessGroup& g) { return ExpectTransport(g, "tls"); }),
                Each(IsOk()));
    const std::string within = std::string(backend) == "messages" ? "shared_memory" : backend;
    EXPECT_THAT(RunPair(
                    backend, [&](ProcessGroup& g) { return ExpectTransport(g, within); }, one_host),
                Each(IsOk()));
  }
}

absl::Status Expect(bool condition, const std::string& what) {
  return condition ? absl::OkStatus() : absl::InternalError(what);
}

// Several blocks for each rank, with a rest that is none, and all under way at once.
TEST(TlsGroup, LargeCollectivesUnderWayTogetherAreRight) {
  constexpr int kRanks = 3;
  const auto results = RunRanks(kRanks, kTls, [](ProcessGroup& group) -> absl::Status {
    const int rank = group.rank();
    for (const int64_t per_rank : {int64_t{1}, int64_t{5000}, int64_t{900'001}}) {
      const int64_t numel = kRanks * per_rank;
      const auto of_rank = [&](int r) { return at::arange(numel, at::kFloat).remainder_(97) + r; };
      at::Tensor sum = of_rank(rank);
      at::Tensor full = of_rank(rank);
      at::Tensor shard = at::zeros({per_rank});
      at::Tensor gathered = at::zeros({numel});
      at::Tensor sent = rank == 1 ? of_rank(7) : at::zeros({numel});
      at::Tensor exchanged = at::zeros({numel});
      at::Tensor maximum = of_rank(rank).to(at::kLong);
      std::vector<std::unique_ptr<Work>> works;
      const auto add = [&](ProcessGroup::WorkOr work) -> absl::Status {
        RETURN_IF_ERROR(work.status());
        works.push_back(*std::move(work));
        return absl::OkStatus();
      };
      RETURN_IF_ERROR(add(group.AllReduce(sum, ReduceOp::kSum, "sum")));
      RETURN_IF_ERROR(add(group.ReduceScatter(shard, full, "shard")));
      RETURN_IF_ERROR(add(group.Broadcast(sent, 1, "sent")));
      RETURN_IF_ERROR(add(group.AllGather(
          gathered, of_rank(0).narrow(0, rank * per_rank, per_rank).contiguous(), "gathered")));
      RETURN_IF_ERROR(add(group.AllToAll(exchanged, of_rank(rank), "exchanged")));
      RETURN_IF_ERROR(add(group.AllReduce(maximum, ReduceOp::kMax, "maximum")));
      for (auto work = works.rbegin(); work != works.rend(); ++work) {
        RETURN_IF_ERROR((*work)->Wait());
      }
      const at::Tensor total = of_rank(0) * 3 + 3;
      RETURN_IF_ERROR(Expect(at::equal(sum, total), "all_reduce"));
      RETURN_IF_ERROR(
          Expect(at::equal(shard, total.narrow(0, rank * per_rank, per_rank)), "reduce_scatter"));
      RETURN_IF_ERROR(Expect(at::equal(sent, of_rank(7)), "broadcast"));
      RETURN_IF_ERROR(Expect(at::equal(gathered, of_rank(0)), "all_gather"));
      RETURN_IF_ERROR(Expect(at::equal(maximum, of_rank(2).to(at::kLong)), "maximum"));
      for (int peer = 0; peer < kRanks; ++peer) {
        RETURN_IF_ERROR(Expect(at::equal(exchanged.narrow(0, peer * per_rank, per_rank),
                                         of_rank(peer).narrow(0, rank * per_rank, per_rank)),
                               "all_to_all"));
      }
    }
    return group.Barrier("end");
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(TlsGroup, RanksAtDifferentCollectivesAreToldSo) {
  const auto results = RunRanks(2, kTls, [](ProcessGroup& group) -> absl::Status {
    at::Tensor tensor = at::zeros({4});
    ASSIGN_OR_RETURN(auto work, group.AllReduce(tensor, ReduceOp::kSum,
                                                group.rank() == 0 ? "loss" : "gradient"));
    return work->Wait();
  });
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kInternal,
                                   AllOf(HasSubstr("all_reduce 'loss'"),
                                         HasSubstr("'all_reduce gradient' of 16 bytes"))));
}

// A rank that computes does not hold up those that wait for what it has begun.
TEST(TlsGroup, WhatARankHasBegunMovesWhileItIsElsewhere) {
  absl::Notification other_is_done;
  const auto results = RunRanks(2, kTls, [&](ProcessGroup& group) -> absl::Status {
    at::Tensor tensor = at::ones({4 << 20});
    ASSIGN_OR_RETURN(auto work, group.AllReduce(tensor, ReduceOp::kSum, "gradient"));
    if (group.rank() == 0) other_is_done.WaitForNotification();
    const absl::Status status = work->Wait();
    if (group.rank() == 1) other_is_done.Notify();
    RETURN_IF_ERROR(status);
    return Expect(at::equal(tensor, at::full({4 << 20}, 2.f)), "wrong values");
  });
  EXPECT_THAT(results, Each(IsOk()));
}

}  // namespace
}  // namespace tandem::comm
