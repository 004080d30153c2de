#include "common/rpc/message_digest.h"

#include <string>

#include "tandem/rollout/v1/weight_service.pb.h"
#include "tests/support/status_matchers.h"

namespace tandem::rpc {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

rollout::v1::BeginUpdateRequest Request() {
  rollout::v1::BeginUpdateRequest request;
  request.set_request_id("5f0c");
  request.set_incarnation(3);
  request.set_update_id("a11b");
  request.set_policy_version(7);
  request.set_base_version(6);
  auto& tensor = *request.mutable_manifest()->add_tensors();
  tensor.set_name("embed");
  tensor.add_shape(512);
  tensor.add_shape(64);
  request.add_buckets()->set_size_bytes(1 << 20);
  request.mutable_rendezvous()->set_host("127.0.0.1");
  request.mutable_timeout()->set_seconds(300);
  request.set_transport(common::v1::TRANSPORT_DELTA);
  return request;
}

TEST(MessageDigest, TellsOfEveryFlippedBitThatLeavesAMessage) {
  rollout::v1::BeginUpdateRequest request = Request();
  SetDigest(request);
  ASSERT_OK(CheckDigest(request));
  const std::string sent = request.SerializeAsString();
  int parsed = 0;
  for (size_t bit = 0; bit < 8 * sent.size(); ++bit) {
    std::string arrived = sent;
    arrived[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    rollout::v1::BeginUpdateRequest other;
    if (!other.ParseFromString(arrived)) continue;
    ++parsed;
    EXPECT_THAT(CheckDigest(other), StatusIs(absl::StatusCode::kDataLoss,
                                             HasSubstr("BeginUpdateRequest arrived damaged")))
        << "bit " << bit;
  }
  EXPECT_GT(parsed, 100);
}

TEST(MessageDigest, OfAnAnswerIsThatOfItsRequestToo) {
  rollout::v1::BeginUpdateRequest request = Request(), other = Request();
  other.set_request_id("5f0d");
  SetDigest(request);
  SetDigest(other);
  rollout::v1::BeginUpdateResponse answer;
  answer.set_ready(true);
  SetDigest(answer, request.message_digest());
  EXPECT_OK(CheckDigest(answer, request.message_digest()));
  EXPECT_THAT(CheckDigest(answer, other.message_digest()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("belongs to another call")));
}

TEST(MessageDigest, IsAskedFor) {
  EXPECT_THAT(CheckDigest(Request()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no message_digest")));
}

TEST(MessageDigest, IsSetAnewWhereAMessageHasChanged) {
  rollout::v1::BeginUpdateRequest request = Request();
  SetDigest(request);
  request.set_policy_version(8);
  EXPECT_THAT(CheckDigest(request), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("damaged")));
  SetDigest(request);
  EXPECT_OK(CheckDigest(request));
}

}  // namespace
}  // namespace tandem::rpc
