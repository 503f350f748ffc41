"""Send messages to an object, and rate the missions that answer them.

    python examples/message_and_rate.py [ENDPOINT]

BRICK does not know `count_words_`. `teach` gives an example and says what the message is for; BAT OS finds or writes a method that does
it, tries it on the example and keeps it. The second message is answered by that method, without a model.
"""

import sys

from batos.errors import MissionFailed
from batos.wire import SyncClient

with SyncClient(*sys.argv[1:2]) as batos:
    lesson = batos.teach("brick", "count_words_", [{"args": ["one two three"], "result": 3}], intent="the number of words in a text")
    print(batos.result(lesson.id)["value"])

    counted = batos.send("brick", "count_words_", "the quick brown fox")
    print("the quick brown fox:", batos.result(counted.id)["value"])
    batos.rate(counted.id, 1, why="right")

    wrong = batos.send("brick", "count_words_", 7)
    try:
        batos.result(wrong.id)
    except MissionFailed as failure:  # nothing of it is in the image; `batos step` enters it
        print(failure.context["code"], failure)
    batos.rate(wrong.id, -1, why="a number is not a text")

    print(batos.method("brick", "count_words_")["versions"][0]["source"])
