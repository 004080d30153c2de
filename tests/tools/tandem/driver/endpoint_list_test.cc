#include "tools/tandem/driver/endpoint_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(EndpointList, ReadsTheFileAgainWhenItChangesAndKeepsIds) {
  const TempFolder folder;
  config::v1::RolloutConfig config;
  config.add_endpoints("fixed:1");
  config.set_endpoints_file(folder.Write("endpoints", "# the first\na:1\n\nb:2  # the second\n"));
  std::vector<std::string> notes;
  ASSERT_OK_AND_ASSIGN(EndpointList list, EndpointList::Open(config, [&](const std::string& note) {
                         notes.push_back(note);
                       }));
  EXPECT_THAT(list.Current(),
              ElementsAre(ReplicaAddress{"rollout-0", "fixed:1"},
                          ReplicaAddress{"rollout-1", "a:1"}, ReplicaAddress{"rollout-2", "b:2"}));
  folder.Write("endpoints", "b:2\nc:3 \n");
  EXPECT_THAT(list.Current(),
              ElementsAre(ReplicaAddress{"rollout-0", "fixed:1"},
                          ReplicaAddress{"rollout-2", "b:2"}, ReplicaAddress{"rollout-3", "c:3"}));
  folder.Write("endpoints", "b:2\nnonsense there\n");
  EXPECT_EQ(list.Current().size(), 3u);
  EXPECT_EQ(list.Current().size(), 3u);
  EXPECT_THAT(notes, ElementsAre(AllOf(HasSubstr("/endpoints:2: expected HOST:PORT, found "
                                                 "\"nonsense there\""),
                                       HasSubstr("keeping the present replicas"))));
  folder.Write("endpoints", "a:1\n");
  EXPECT_THAT(list.Current(), ElementsAre(ReplicaAddress{"rollout-0", "fixed:1"},
                                          ReplicaAddress{"rollout-1", "a:1"}));
}

TEST(EndpointList, SaysWhatIsWrongWithTheFileItBeginsWith) {
  const TempFolder folder;
  config::v1::RolloutConfig config;
  config.set_endpoints_file(folder / "none");
  EXPECT_THAT(EndpointList::Open(config, nullptr).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("rollout.endpoints_file")));
  EXPECT_THAT(ParseEndpoints("a:1\na:1\n", "f").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("f:2: a:1 is listed twice")));
  EXPECT_THAT(ParseEndpoints("a:0\n", "f").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("f:1: expected HOST:PORT")));
}

}  // namespace
}  // namespace tandem::driver
