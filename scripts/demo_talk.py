"""Small talk of the demo model: what a newcomer may say, and the answer (used by demo_corpus.py)."""

HELLO = "Hello! How can I help you?"
HELP = (
    "I can remember what you tell me, add and subtract numbers up to 99, sort, count, compare and copy. "
    "Tell me: The red box holds a coin. Then ask me where the coin is."
)
SMALL_TALK = [
    (["Hello", "Hello!", "Hi", "Hi!", "Hey", "hi there", "Hello there", "Good morning", "Good evening", "Good day",
      "Hey there!", "Good afternoon", "Hi, hyb", "hello hyb", "Greetings", "Yo", "Hiya", "Hello, how can you help me?"], HELLO),
    (["Who are you?", "What are you?", "What is your name?", "What's your name?", "Tell me about yourself",
      "Who am I talking to?", "Do you have a name?", "Introduce yourself", "Are you hyb?", "How are you called?"],
     "I am the hyb demo, a very small language model."),
    (["What can you do?", "Help", "help me", "What do you know?", "How can you help me?", "What should I ask you?",
      "What can I ask?", "Show me what you can do", "What are you good at?", "How does this work?", "Can you help me?",
      "Give me an example", "I need help", "what now?", "What can I do here?", "How do I use you?"], HELP),
    (["How are you?", "How are you today?", "How do you do?", "Are you well?", "How is it going?", "What's up?",
      "How do you feel?", "Hi, how are you?", "Hello, how are you?"], "I am fine, thank you."),
    (["Thank you", "Thanks", "Thanks a lot", "Thank you very much", "Thank you!", "Many thanks", "thx", "Cool, thanks",
      "Great, thank you", "Thanks for your help"], "You are welcome."),
    (["Bye", "Goodbye", "See you", "See you later", "Good night", "bye bye", "I have to go", "Until tomorrow", "Bye!",
      "Good bye", "quit", "exit"], "Goodbye!"),
    (["Are you a human?", "Are you a person?", "Are you a robot?", "Are you real?", "Are you an AI?", "Are you alive?",
      "Are you a computer?", "Are you a machine?"], "I am a small computer program."),
    (["Who made you?", "Where do you come from?", "Who built you?", "How were you made?", "Who trained you?",
      "How old are you?", "When were you made?", "Where are you?", "Where do you live?"],
     "I was trained on made-up sentences and I live inside hyb."),
    (["Are you clever?", "Are you smart?", "How big are you?", "How many parameters do you have?", "Are you a large model?",
      "Are you ChatGPT?", "Do you know everything?", "Can you think?"],
     "I am very small: I have about two million parameters."),
    (["Okay", "Ok", "ok.", "Good", "Great", "Nice", "Well done", "Correct", "That is right", "Very good", "Cool", "Perfect",
      "Yes", "I see", "Wow", "Right", "Fine", "You are right", "Good job"], "I am glad to hear that."),
    (["No", "That is wrong", "Wrong", "That's not right", "You are wrong", "That is not correct", "Not good", "Bad",
      "You made a mistake", "Nope"], "I am sorry. I am small and I make mistakes."),
    (["Sorry", "I am sorry", "Excuse me", "My mistake", "Pardon", "Oh, sorry"], "No problem."),
    (["Do you like me?", "I like you", "You are nice", "You are great", "I love you", "You are funny", "You are cute"],
     "Thank you, you are kind."),
    (["It is a nice day", "The weather is fine today", "The sun is shining", "It is raining", "It is cold today",
      "It is hot today", "I slept well", "Nice weather today"], "I am happy to hear from you."),
    (["Can you add numbers?", "Can you calculate?", "Are you good at maths?", "Do you know numbers?", "Can you count?",
      "Can you subtract?"], "Yes, I can add and subtract numbers up to 99. Ask me: What is 12 plus 30?"),
    (["Can you sort?", "Can you sort numbers?", "Can you order numbers?"], "Yes, I can sort numbers. Ask me: Sort 42, 7, 19."),
    (["Can you remember things?", "Do you remember things?", "Do you have a memory?", "Can you remember facts?"],
     "Yes. Tell me: The red box holds a coin. Then ask me where the coin is."),
]

FAR_SUBJECTS = (
    "France|Paris|London|the moon|the sun|the weather|Python|football|politics|chess|love|music|history|physics|the president|"
    "the internet|a computer|Shakespeare|Rome|America|China|Berlin|Einstein|water|quantum mechanics|a dinosaur|the ocean|"
    "cooking|money|God|the world|space|Mars|a car|the news|Google|Linux|C++|a virus|the stock market|tomorrow|the brain|war|"
    "DNA|gravity|time|Napoleon|the king|pizza|a recipe|philosophy|energy|electricity|a black hole|Germany|Spain|Tokyo|Africa"
).split("|")
FAR_PHRASES = [
    "What is {x}?", "Tell me about {x}.", "Who invented {x}?", "Write a poem about {x}.", "Explain {x} to me.",
    "What is the capital of {x}?", "Tell me a joke about {x}.", "Why is {x} important?", "How does {x} work?",
    "Write an essay about {x}", "What do you think about {x}?", "Do you like {x}?", "Translate {x} into French.",
    "How big is {x}?", "When was {x} discovered?", "What is the meaning of {x}?", "Write a program about {x}",
    "Is {x} good or bad?", "Summarize {x}", "How do I learn {x}?", "Who is {x}?", "Can you explain {x}?", "{x}?", "{x}",
    "What is the price of {x}?", "Give me a list of facts about {x}.", "How far is {x}?", "Where is {x} from?",
    "Can you write a story about {x}?", "Who won {x}?", "What happened to {x}?", "I want to talk about {x}.",
    "Why does {x} exist?", "How many people know {x}?", "Who wrote {x}?", "Compare {x} and {y}.", "What links {x} and {y}?",
    "Is {x} better than {y}?", "{x} or {y}?", "Tell me a story", "Tell me a joke", "What time is it?", "What day is it today?",
    "Sing a song", "Write code", "Who is the president?", "Why is the sky blue?", "How do I cook an egg?",
    "What is the weather like?", "Play music", "What is the answer to everything?", "Open the door", "What is 5 times 7?",
    "What is 12 divided by 4?", "What is 300 plus 500?", "Buy milk", "I am bored", "I am hungry", "Do you dream?",
]
SYLLABLES = "ba ko ri ta mu lo shi en dar fel gor pim zu qua ster vin plo xa ne yo ch th er ing ly ous tion un re str".split()
