#include "common/weights/update_place.h"

#include <gmock/gmock.h>

#include <vector>

#include "tests/support/status_matchers.h"

namespace tandem::weights {
namespace {

using security::DataPlaneEncryption;

common::v1::UpdatePlace At(const std::string& gpu, const std::string& host = "one") {
  common::v1::UpdatePlace place;
  place.set_gpu(gpu);
  place.set_host(host);
  return place;
}

std::string Chosen(const std::vector<common::v1::UpdatePlace>& places,
                   DataPlaneEncryption encryption = DataPlaneEncryption::kNever,
                   bool allow_plaintext_nccl = false, bool shares_memory = true) {
  return ChooseBackend({"messages", shares_memory}, places, {encryption, allow_plaintext_nccl});
}

TEST(UpdatePlace, ARankInHostMemoryTakesAllThere) {
  EXPECT_EQ(Chosen({At("a"), At("b")}), "nccl");
  EXPECT_EQ(Chosen({At("a"), At("b"), At("")}), "messages");
  EXPECT_EQ(Chosen({At(""), At("b")}), "messages");
}

TEST(UpdatePlace, OneGpuNeedsItsOwnMemory) {
  EXPECT_EQ(Chosen({At("a"), At("a")}), "cuda_ipc");
  EXPECT_EQ(Chosen({At("a"), At("a")}, DataPlaneEncryption::kNever, false, /*shares_memory=*/false),
            "messages");
  // Two network namespaces, or users: neither opens the other's memory.
  EXPECT_EQ(Chosen({At("a", "one"), At("a", "two")}), "messages");
  EXPECT_EQ(Chosen({At("a", ""), At("a", "")}), "messages");
}

TEST(UpdatePlace, NcclTakesOneRankPerGpu) {
  EXPECT_EQ(Chosen({At("a"), At("b"), At("a")}), "messages");
  EXPECT_EQ(Chosen({At("a", "one"), At("b", "two")}), "nccl");
}

TEST(UpdatePlace, NcclIsNoLinkThatMustBeEncrypted) {
  const std::vector<common::v1::UpdatePlace> two_hosts = {At("a", "one"), At("b", "two")};
  const std::vector<common::v1::UpdatePlace> one_host = {At("a"), At("b")};
  EXPECT_EQ(Chosen(two_hosts, DataPlaneEncryption::kBetweenHosts), "messages");
  EXPECT_EQ(Chosen(two_hosts, DataPlaneEncryption::kBetweenHosts, true), "nccl");
  EXPECT_EQ(Chosen(one_host, DataPlaneEncryption::kBetweenHosts), "nccl");
  EXPECT_EQ(Chosen(one_host, DataPlaneEncryption::kAlways), "messages");
  EXPECT_EQ(Chosen({At("a", ""), At("b", "")}, DataPlaneEncryption::kBetweenHosts), "messages");
}

TEST(UpdatePlace, HostMemoryHasNoGpu) {
  ASSERT_OK_AND_ASSIGN(const common::v1::UpdatePlace place, PlaceOf(c10::kCPU));
  EXPECT_EQ(place.gpu(), "");
  EXPECT_NE(place.host(), "");
}

}  // namespace
}  // namespace tandem::weights
