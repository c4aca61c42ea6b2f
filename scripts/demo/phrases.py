"""Words and phrasings of the demo model's closed world (used by corpus.py)."""

COLOURS = "red blue green yellow black white brown pink orange purple grey golden".split()
CONTAINERS = "box bag basket jar drawer chest bucket cup case tin crate pot".split()
ITEMS = (
    "coin key ring pen ball book apple lemon nut stone spoon shell button candle card map "
    "rope watch bell doll brush feather pear plum cookie whistle cork nail stamp ticket "
    "marble comb lamp kite egg scarf glove hat sock mirror needle knife flute drum"
).split()
PEOPLE = (
    "Anna Ben Carla David Emma Felix Grace Henry Iris Jack Kate Leo Maria Nina Oscar Paul "
    "Rosa Sam Tina Victor Wendy Clara Peter Lucy Tom Julia Max Olga"
).split()
PLACES = (
    "kitchen garden library school market park station museum bakery harbour office cellar "
    "attic garage forest beach castle hospital church theatre"
).split()
JOBS = (
    "baker teacher doctor painter sailor farmer singer pilot nurse writer cook driver "
    "gardener dentist builder dancer"
).split()
LIKES = (
    "tea coffee milk bread cheese soup rice honey music books trains birds cats dogs horses "
    "flowers apples plums lemons games songs stars snow rain"
).split()

BOX_FACTS = [
    "The {box} holds {an_item}.",
    "There is {an_item} in the {box}.",
    "In the {box} there is {an_item}.",
    "{An_item} is in the {box}.",
    "I put {an_item} in the {box}.",
    "The {box} contains {an_item}.",
    "You can find {an_item} in the {box}.",
    "Inside the {box} is {an_item}.",
    "The {item} is in the {box}.",
    "The {box} has {an_item} in it.",
]
BOX_PLAIN = [
    "The {box} holds {an_item}.",
    "{An_item} is in the {box}.",
    "The {item} is in the {box}.",
]
BOX_WHAT = [
    "What is in the {box}?",
    "What's in the {box}?",
    "What does the {box} hold?",
    "What does the {box} contain?",
    "What is inside the {box}?",
    "What can I find in the {box}?",
    "Tell me what is in the {box}.",
    "Which thing is in the {box}?",
    "Do you know what is in the {box}?",
    "What did I put in the {box}?",
]
BOX_WHERE = [
    "Where is the {item}?",
    "Where's the {item}?",
    "Where can I find the {item}?",
    "In which container is the {item}?",
    "What holds the {item}?",
    "Tell me where the {item} is.",
    "Where did I put the {item}?",
    "Do you know where the {item} is?",
    "Which container holds the {item}?",
]
BOX_CHECK = [
    "Is the {item} in the {box}?",
    "Does the {box} hold the {item}?",
    "Is there {an_item} in the {box}?",
]

PERSON_FACTS = {
    "place": [
        "{name} is in the {value}.",
        "{name} went to the {value}.",
        "{name} is at the {value}.",
        "You can find {name} in the {value}.",
        "In the {value} you can meet {name}.",
        "{name} walked to the {value}.",
        "{name} stays in the {value}.",
        "I saw {name} in the {value}.",
    ],
    "job": [
        "{name} is a {value}.",
        "{name} works as a {value}.",
        "The job of {name} is {value}.",
        "{name} became a {value}.",
        "{name} is our {value}.",
        "I know {name}, the {value}.",
        "{name} earns money as a {value}.",
        "By trade {name} is a {value}.",
    ],
    "likes": [
        "{name} likes {value}.",
        "{name} loves {value}.",
        "{name} is fond of {value}.",
        "{name} really likes {value}.",
        "The favourite of {name} is {value}.",
        "{name} enjoys {value}.",
        "What {name} likes is {value}.",
        "{name} is happy with {value}.",
    ],
    "age": [
        "{name} is {value} years old.",
        "{name} is {value}.",
        "The age of {name} is {value}.",
        "{name} has turned {value}.",
        "{name} is now {value} years old.",
        "At the moment {name} is {value} years old.",
        "{name} just became {value}.",
        "I think {name} is {value} years old.",
    ],
}
PERSON_ASKS = {
    "place": [
        "Where is {name}?",
        "Where's {name}?",
        "Where can I find {name}?",
        "Where did {name} go?",
        "In which place is {name}?",
        "Tell me where {name} is.",
        "Do you know where {name} is?",
        "At which place can I meet {name}?",
    ],
    "job": [
        "What is the job of {name}?",
        "What does {name} do for a living?",
        "What is {name}'s job?",
        "Which job does {name} have?",
        "What does {name} work as?",
        "Tell me the job of {name}.",
        "Do you know the job of {name}?",
        "What work does {name} do?",
    ],
    "likes": [
        "What does {name} like?",
        "What does {name} love?",
        "What is {name} fond of?",
        "Tell me what {name} likes.",
        "Do you know what {name} likes?",
        "What is the favourite of {name}?",
        "What does {name} enjoy?",
        "Which thing does {name} like?",
    ],
    "age": [
        "How old is {name}?",
        "What is the age of {name}?",
        "What is {name}'s age?",
        "Tell me how old {name} is.",
        "Tell me the age of {name}.",
        "Do you know how old {name} is?",
        "Do you know the age of {name}?",
        "How many years old is {name}?",
    ],
}
PERSON_ANSWERS = {
    "place": "{name} is in the {value}.",
    "job": "{name} is a {value}.",
    "likes": "{name} likes {value}.",
    "age": "{name} is {value} years old.",
}
PERSON_UNKNOWN = {
    "place": "I do not know where {name} is.",
    "job": "I do not know the job of {name}.",
    "likes": "I do not know what {name} likes.",
    "age": "I do not know how old {name} is.",
}
WHO_ASKS = [
    "Who is in the {value}?",
    "Who went to the {value}?",
    "Whom can I meet in the {value}?",
    "Tell me who is in the {value}.",
    "Which person is in the {value}?",
    "Do you know who is in the {value}?",
    "Who is at the {value}?",
    "Who stays in the {value}?",
]
NAME_FACTS = [
    "My name is {name}.",
    "I am {name}.",
    "I'm {name}.",
    "Call me {name}.",
    "You can call me {name}.",
    "Hello, I am {name}.",
    "Hi, my name is {name}.",
    "This is {name} speaking.",
]
NAME_ASKS = [
    "What is my name?",
    "What's my name?",
    "Who am I?",
    "Do you remember my name?",
    "Tell me my name.",
    "How am I called?",
    "Do you know my name?",
    "Say my name.",
]

ADD = [
    "What is {a} plus {b}?",
    "What is {a} + {b}?",
    "{a} + {b}",
    "{a} + {b} = ?",
    "Add {a} and {b}.",
    "How much is {a} plus {b}?",
    "What is the sum of {a} and {b}?",
    "Calculate {a} + {b}.",
    "{a} plus {b}",
    "Please work out {a} plus {b}.",
    "Can you add {a} and {b}?",
    "What do you get for {a} + {b}?",
    "{a}+{b}",
]
SUBTRACT = [
    "What is {a} minus {b}?",
    "What is {a} - {b}?",
    "{a} - {b}",
    "{a} - {b} = ?",
    "Subtract {b} from {a}.",
    "How much is {a} minus {b}?",
    "Take {b} away from {a}.",
    "Calculate {a} - {b}.",
    "{a} minus {b}",
    "Please work out {a} minus {b}.",
    "Can you take {b} from {a}?",
    "What is {a} take away {b}?",
    "{a}-{b}",
]
COPY = [
    "Repeat: {text}",
    "Say: {text}",
    "Copy this: {text}",
    "Repeat after me: {text}",
    "Echo: {text}",
    "Please say: {text}",
    "Write this again: {text}",
    "Say this back to me: {text}",
    "Repeat the words: {text}",
    "Can you repeat this? {text}",
]
SORT_UP = [
    "Sort {list}.",
    "Sort these numbers: {list}",
    "Put {list} in order.",
    "Sort {list} from small to large.",
    "Order these numbers: {list}",
    "Please sort the numbers {list}.",
    "Arrange {list} from low to high.",
    "Bring these numbers in order: {list}",
    "Can you sort {list}?",
    "Sort in rising order: {list}",
]
SORT_DOWN = [
    "Sort {list} from large to small.",
    "Sort {list} backwards.",
    "Arrange {list} from high to low.",
    "Sort in falling order: {list}",
    "Put {list} in falling order.",
    "Sort down: {list}",
    "Order these numbers from large to small: {list}",
    "Please sort {list} with the largest first.",
]
COUNT_ALL = [
    "How many things are in this list: {list}?",
    "Count these things: {list}",
    "How many things are here: {list}?",
    "Count the words: {list}",
    "How many words do you see: {list}?",
    "How long is this list: {list}?",
    "Please count: {list}",
    "How many are there: {list}?",
    "Tell me how many things I name: {list}.",
]
COUNT_WORD = [
    "How many times do I say {word}: {list}?",
    "How often does {word} appear: {list}?",
    "Count the word {word}: {list}",
    "How many times is {word} in this list: {list}?",
    "How often do you see {word} here: {list}?",
    "Count how often I say {word}: {list}",
    "How many of these words are {word}: {list}?",
    "Please count {word}: {list}",
]
COMPARE_LARGER = [
    "Which is larger, {a} or {b}?",
    "Which number is bigger, {a} or {b}?",
    "What is more, {a} or {b}?",
    "Is {a} or {b} larger?",
    "Tell me the larger number: {a} or {b}.",
    "Which is greater: {a} or {b}?",
    "Find the larger of {a} and {b}.",
    "Compare {a} and {b}. Which is larger?",
]
COMPARE_SMALLER = [
    "Which is smaller, {a} or {b}?",
    "Which number is smaller, {a} or {b}?",
    "What is less, {a} or {b}?",
    "Is {a} or {b} smaller?",
    "Tell me the smaller number: {a} or {b}.",
    "Which is lower: {a} or {b}?",
    "Find the smaller of {a} and {b}.",
    "Compare {a} and {b}. Which is smaller?",
]
CHECK_LARGER = [
    "Is {a} larger than {b}?",
    "Is {a} bigger than {b}?",
    "Is {a} more than {b}?",
    "Is {a} greater than {b}?",
]
CHECK_SMALLER = ["Is {a} smaller than {b}?", "Is {a} less than {b}?", "Is {a} lower than {b}?"]

FILLERS = [
    "It is a nice day.",
    "The weather is fine today.",
    "I had a cup of tea this morning.",
    "The sun is shining.",
    "It was raining last night.",
    "I slept well.",
    "I am a little tired today.",
    "We had soup for lunch.",
    "The train was late again.",
    "I saw a {colour} bird near the {place}.",
    "Yesterday I walked past the {place}.",
    "The {place} was closed on Monday.",
    "The {place} is very old.",
    "There were many people at the {place}.",
    "A {colour} car stood in front of the {place}.",
    "I painted my door {colour}.",
    "My bike is {colour}.",
    "I want to buy {colour} shoes.",
    "I heard a song on the radio.",
    "The bread was still warm.",
    "My neighbour has a new dog.",
    "The night was quiet.",
    "I wrote a letter to my sister.",
    "Dinner was very good.",
    "The road to the {place} is long.",
    "I like the smell of the {place}.",
    "Winter will come soon.",
    "The clock on the {place} is slow.",
    "We laughed a lot.",
    "I read a story about a {colour} dragon.",
]
ACKNOWLEDGE = "Okay, I will remember that."
ONLY_KNOW = "I only know a small world of boxes, people, places and numbers up to 99."
